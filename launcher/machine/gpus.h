// How many GPUs a job may use, without linking CUDA: NVIDIA's management library is loaded when it is there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

// UUIDs of this machine's GPUs ("GPU-..."), in the driver's order; nothing without a driver.
std::optional<std::vector<std::string>> installed_gpus();

// Those of them that CUDA would show, in CUDA's order, with this value of CUDA_VISIBLE_DEVICES (null: unset): indices,
// UUIDs or unambiguous beginnings of them, MIG instances; CUDA stops at the first entry that names no device, and at a
// repeated one shows none. Pure.
std::vector<std::string> visible_gpu_uuids(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

// How many those are. Pure.
int visible_gpus(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

// The driver's version, such as "580.95.05"; nothing without a driver.
std::optional<std::string> gpu_driver_version();

}  // namespace launcher
