// Internal: the interface between comm and libddprun_comm_cuda.so, the one library that touches CUDA and NCCL. It is
// loaded, and libtorch_cuda with it, only where a CUDA device can be used and the program wants one: loading
// libtorch_cuda multiplies the start-up time and the memory of a CPU run.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "comm/group/c10d_compat.h"

namespace ddp::detail {

/// What torch.distributed tells NCCL about a group.
struct NcclPlan {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{};
  std::string group_name{};
  std::string description{};
  /// A sub-group's ranks in the job; empty: the job itself. Flight recorder, watchdog and heartbeat messages say ranks
  /// by them.
  std::vector<int> members{};
};

class CudaPlugin {
 public:
  virtual ~CudaPlugin() = default;

  /// Throws std::runtime_error when the NCCL that is loaded is not the version this was compiled with.
  virtual void check_nccl_version() const = 0;
  /// A text that identifies the physical GPU (UUID) behind a device index.
  virtual std::string device_uuid(int device_index) const = 0;
  /// Whether the calling thread's current stream is being captured into a graph. Makes no context.
  virtual bool is_capturing() const = 0;
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const NcclPlan& plan) const = 0;
};

/// The plugin, or null on a CPU run; `why` (if not null) receives the reason for its absence, for error messages. The
/// first call loads it, and libtorch_cuda with it. Throws std::runtime_error when that comes too late: before it the
/// program has asked LibTorch about CUDA, which then sees none for good.
const CudaPlugin* cuda_plugin(std::string* why = nullptr);

}  // namespace ddp::detail

/// The plugin's only symbol. Owned by the plugin.
extern "C" const ddp::detail::CudaPlugin* ddprun_cuda_plugin();
