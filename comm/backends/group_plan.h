// Internal: the group that a rank is about to connect.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/core/backend_map.h"

namespace ddp::detail {

/// A communicator of devices that is made as a part of another one, by all ranks of that at once.
struct CommunicatorSplit {
  c10::intrusive_ptr<c10d::Backend> from{};  ///< null: a communicator of its own
  int color = 0;                             ///< the ranks that name the same one are together
};

struct GroupPlan {
  RankInfo info{};
  BackendMap backends{};
  c10::Device device{c10::kCPU};
  std::chrono::milliseconds timeout{};
  c10::intrusive_ptr<c10d::Store> store{};  ///< the group's keys are made under "<name>/" in it
  std::string name{};
  std::string description{};
  /// A sub-group's ranks in the job; empty: the job itself. NCCL's flight recorder, watchdog and heartbeat messages say
  /// ranks by them.
  std::vector<int> members{};
  bool reports_job_ranks = false;  ///< messages of shared memory name the other ranks by `members` as well
  CommunicatorSplit split{};
  bool in_process = false;  ///< all ranks are threads of this process: gloo stays on the loopback interface
};

}  // namespace ddp::detail
