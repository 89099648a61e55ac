// Internal: the interface between comm and libddprun_comm_cuda.so, the one library that touches CUDA and NCCL. It is
// loaded, and libtorch_cuda with it, only where a CUDA device can be used and the program wants one: loading
// libtorch_cuda multiplies the start-up time and the memory of a CPU run.
#pragma once

#include <string>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/backends/group_plan.h"

namespace ddp::detail {

class CudaPlugin {
 public:
  virtual ~CudaPlugin() = default;

  /// Throws std::runtime_error when the NCCL that is loaded is not the version this was compiled with.
  virtual void check_nccl_version() const = 0;
  /// A text that identifies the physical GPU (UUID) of a device index.
  virtual std::string device_uuid(int device_index) const = 0;
  /// Whether the calling thread's current stream is being captured into a graph. Makes no context.
  virtual bool is_capturing() const = 0;
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const GroupPlan& plan) const = 0;
  /// Whether make_nccl() can make parts of this communicator, of a group that is connected.
  virtual bool can_split(const c10d::Backend& communicator) const = 0;
  /// A rank that is in no part must call this while the other ranks call make_nccl(). Blocks until all ranks have
  /// called one of the two.
  virtual void split_as_non_member(c10d::Backend& communicator, c10::Device device) const = 0;
};

/// The plugin, or null on a CPU run; `why` (if not null) receives the reason for its absence, for error messages. The
/// first call loads it, and libtorch_cuda with it. Throws std::runtime_error if the program has asked LibTorch about
/// CUDA before: LibTorch then reports no device until the process ends.
const CudaPlugin* cuda_plugin(std::string* why = nullptr);

/// The plugin; throws std::invalid_argument with the reason for its absence. `purpose` begins the message.
const CudaPlugin& require_cuda(const RankInfo& info, const std::string& purpose);

}  // namespace ddp::detail

/// The plugin's only symbol. Owned by the plugin.
extern "C" const ddp::detail::CudaPlugin* ddprun_cuda_plugin();
