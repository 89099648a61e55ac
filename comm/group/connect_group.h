// Internal: makes a c10d group of connected backends, for the job and for its sub-groups.
#pragma once

#include <chrono>
#include <string>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/backends/group_plan.h"

namespace ddp::detail {

struct ConnectedGroup {
  c10::intrusive_ptr<c10d::ProcessGroup> group{};
  BackendMap backends{};  ///< those that serve it, where the plan's have chosen others
};

/// Connects this rank with the group's others; blocks until all have called it. Throws what the backends throw.
///
/// The key prefixes and the order of calls are torch.distributed's, so that ranks that run Python meet the same keys.
ConnectedGroup connect_group(const GroupPlan& plan);

/// Throws std::invalid_argument for a timeout that is not above 0.
void check_timeout(const RankInfo& info, const char* operation, std::chrono::milliseconds timeout);

/// Throws std::invalid_argument, beginning with `subject`, for a device that no backend serves: neither CPU nor CUDA.
void check_kind(const std::string& subject, c10::Device device);

/// What a process needs before its first group: broken connections do not end it with SIGPIPE,
/// TORCH_DISTRIBUTED_DEBUG is read, and oneMKL has chosen its kernels (make_first_calls()).
void prepare_process();

/// Makes `device` the calling thread's, before anything else uses CUDA there: the first call of a thread makes a
/// context on its current device.
void bind_device(c10::Device device);

}  // namespace ddp::detail
