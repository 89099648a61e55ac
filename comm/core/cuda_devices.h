// Internal: whether this process can use CUDA, for folders that know nothing of it.
#pragma once

namespace ddp::detail {

/// Number of visible CUDA devices; 0 on a CPU run. The first call loads the CUDA part. Throws std::runtime_error if
/// that is too late, see comm/backends/cuda_plugin.h.
int cuda_device_count();

/// Loads the CUDA part where there is a device. Never throws; cuda_device_count() has the outcome.
void preload_cuda();

}  // namespace ddp::detail
