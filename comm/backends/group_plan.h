// Internal: the group that a rank is about to connect.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/core/backend_map.h"

namespace ddp::detail {

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
  bool in_process = false;  ///< all ranks are threads of this process: gloo stays on the loopback interface
};

}  // namespace ddp::detail
