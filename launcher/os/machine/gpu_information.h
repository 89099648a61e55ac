// The GPUs of this machine, from the NVIDIA driver's files: quick to read, where asking its library takes a while. And
// which of them CUDA_VISIBLE_DEVICES shows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace launcher {

// Those of `uuids` that CUDA would show, in CUDA's order, with this value of CUDA_VISIBLE_DEVICES (null: unset):
// indices, UUIDs or unambiguous beginnings of them, MIG instances; CUDA stops at the first entry that names no device,
// and at a repeated one shows none. Pure.
std::vector<std::string> visible_gpu_uuids(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

// How many those are. Pure.
int visible_gpus(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

struct GpuInformation {
  std::string bus_id{};  // "0000:1b:00.0"
  std::string model{};
  std::string uuid{};
};

// The GPUs under `folder`, in the order of their bus addresses: that of nvidia-smi. Empty without a driver.
std::vector<GpuInformation> driver_gpus(const std::string& folder = "/proc/driver/nvidia/gpus");

// The entry of CUDA_VISIBLE_DEVICES (null: unset) that CUDA device `index` stands for: "" without such an entry. Pure.
std::string visible_entry(const char* cuda_visible_devices, int index);

// The GPU that an entry (a number, a UUID or the beginning of one) means; null when it is not in `gpus`. Pure.
const GpuInformation* find_gpu(const std::vector<GpuInformation>& gpus, std::string_view entry);

// "GPU 2 (NVIDIA H200, GPU-3f...)", as far as it is known. Pure.
std::string describe_gpu(const std::vector<GpuInformation>& gpus, const std::string& entry);

}  // namespace launcher
