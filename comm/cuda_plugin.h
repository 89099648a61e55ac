// Internal: the interface between comm and libddprun_comm_cuda.so, the one library that touches CUDA and NCCL. It is
// loaded, and libtorch_cuda with it, only where a CUDA device can be used: loading libtorch_cuda doubles the start-up
// time and quadruples the memory of a CPU run.
#pragma once

#include <chrono>
#include <string>

#include "comm/c10d_compat.h"

namespace ddp::detail {

class CudaPlugin {
 public:
  virtual ~CudaPlugin() = default;

  /// Throws std::runtime_error when the NCCL that is loaded is not the version this was compiled with.
  virtual void check_nccl_version() const = 0;
  /// A text that identifies the physical GPU (UUID) behind a device index.
  virtual std::string device_uuid(int device_index) const = 0;
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                      std::chrono::milliseconds timeout,
                                                      const std::string& group_name) const = 0;
};

/// The loaded plugin, or null on a CPU run. `why` (if not null) receives the reason for its absence, for error
/// messages.
const CudaPlugin* cuda_plugin(std::string* why = nullptr);

}  // namespace ddp::detail

/// The plugin's only symbol. Owned by the plugin.
extern "C" const ddp::detail::CudaPlugin* ddprun_cuda_plugin();
