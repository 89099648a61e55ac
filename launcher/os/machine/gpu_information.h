// The GPUs of this machine according to the NVIDIA driver's files, which are faster to read than its library; and which
// of them CUDA_VISIBLE_DEVICES shows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace launcher {

// Returns those of `uuids` that CUDA would show, in CUDA's order, for this value of CUDA_VISIBLE_DEVICES (null: unset).
// Entries are indices, UUIDs or unambiguous beginnings of them, or MIG instances. CUDA stops at the first entry that
// refers to no device, and shows no device if one is repeated. Pure.
std::vector<std::string> visible_gpu_uuids(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

// The number of these GPUs. Pure.
int visible_gpus(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

struct GpuInformation {
  std::string bus_id{};  // "0000:1b:00.0"
  std::string model{};
  std::string uuid{};
};

// The GPUs under `folder`, in the order of their bus addresses, which is the order of nvidia-smi. Empty without a
// driver.
std::vector<GpuInformation> driver_gpus(const std::string& folder = "/proc/driver/nvidia/gpus");

// The entry of CUDA_VISIBLE_DEVICES (null: unset) for the CUDA device `index`; "" if it has no such entry. Pure.
std::string visible_entry(const char* cuda_visible_devices, int index);

// The GPU to which an entry (a number, a UUID or the beginning of one) refers; null when it is not in `gpus`. Pure.
const GpuInformation* find_gpu(const std::vector<GpuInformation>& gpus, std::string_view entry);

// "GPU 2 (NVIDIA H200, GPU-3f...)", as far as it is known. Pure.
std::string describe_gpu(const std::vector<GpuInformation>& gpus, const std::string& entry);

}  // namespace launcher
