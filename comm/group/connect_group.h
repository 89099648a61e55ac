// Internal: makes a c10d group of connected backends, for the job and for its sub-groups.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "comm/core/backend_map.h"
#include "comm/group/c10d_compat.h"

namespace ddp::detail {

class CudaPlugin;

/// What a tests' backend does to the real one; empty: nothing.
using BackendWrapper = std::function<c10::intrusive_ptr<c10d::Backend>(c10::intrusive_ptr<c10d::Backend>)>;

struct GroupPlan {
  RankInfo info{};
  BackendMap backends{};
  c10::Device device{c10::kCPU};
  std::chrono::milliseconds timeout{};
  c10::intrusive_ptr<c10d::Store> store{};  ///< the group's keys are made under "<name>/" in it
  std::string name{};
  std::string description{};
  std::vector<int> members{};  ///< a sub-group's ranks in the job; empty: the job itself
  bool in_process = false;     ///< all ranks are threads of this process: gloo stays on the loopback interface
  BackendWrapper wrapper{};    ///< put around each CPU backend
};

/// Connects this rank with the group's others; blocks until all have come. Throws what the backends throw.
///
/// The key prefixes and the order of calls are torch.distributed's, so that ranks that run Python meet the same keys.
c10::intrusive_ptr<c10d::ProcessGroup> connect_group(const GroupPlan& plan);

/// Throws std::invalid_argument for a timeout that is not above 0.
void check_timeout(const RankInfo& info, const char* operation, std::chrono::milliseconds timeout);

/// What a process needs before its first group: broken connections do not end it with SIGPIPE, and
/// TORCH_DISTRIBUTED_DEBUG is read.
void prepare_process();

/// The CUDA part; throws std::invalid_argument with the reason for its absence. `purpose` begins the message.
const CudaPlugin& require_cuda(const RankInfo& info, const std::string& purpose);

/// Makes `device` the calling thread's, before anything else uses CUDA there: the first call of a thread makes a
/// context on its current device.
void bind_device(c10::Device device);

}  // namespace ddp::detail
