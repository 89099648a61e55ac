// Which GPUs a job may use.
#pragma once

#include <string>
#include <vector>

namespace launcher {

// Those of `uuids` that CUDA would show, in CUDA's order, with this value of CUDA_VISIBLE_DEVICES (null: unset):
// indices, UUIDs or unambiguous beginnings of them, MIG instances; CUDA stops at the first entry that names no device,
// and at a repeated one shows none. Pure.
std::vector<std::string> visible_gpu_uuids(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

// How many those are. Pure.
int visible_gpus(const std::vector<std::string>& uuids, const char* cuda_visible_devices);

}  // namespace launcher
