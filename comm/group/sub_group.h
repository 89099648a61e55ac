// Internal: connects some ranks of a group as a group of their own, at once or when it is first used.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

#include "comm/backends/group_plan.h"
#include "comm/core/backend_map.h"
#include "comm/group/member_processes.h"

namespace ddp::detail {

/// A group that is made of ranks of another one, its parent. All ranks of the parent know it, only its members connect.
struct SubGroupPlan {
  int64_t number = 0;  ///< among the parent's sub-groups, the same on all its ranks: the group's name in the store
  std::vector<int> ranks{};  ///< the members' ranks in the parent, in the order of their ranks here
  BackendMap backends{};
  std::chrono::milliseconds timeout{};
  std::string subject{};  ///< what messages call the connection: "new_group: could not connect ranks (0, 1)"
  /// The members' processes, in the same order, where they are known: one that has ended is then not waited for.
  std::vector<ProcessIdentity> processes{};
  /// Then all ranks of the parent take part at once: non-members by split_as_non_member().
  CommunicatorSplit split{};
};

enum class Connect { kAtOnce, kAtFirstUse };

/// The backends for a sub-group of `ranks`: those named, or else the parent's. Throws std::invalid_argument, naming
/// `operation`, for backends that cannot serve them.
BackendMap sub_group_backends(const std::string& named, const std::vector<int>& ranks, const GroupHandle& parent,
                              const char* operation);

/// The parent's communicator of devices, if sub-groups with these backends can be parts of it, the same answer on all
/// its ranks; else null: without NCCL, with ranks that run Python, or with TORCH_DISTRIBUTED_DEBUG=DETAIL.
c10::intrusive_ptr<c10d::Backend> communicator_to_split(const GroupHandle& parent, const BackendMap& backends);

/// A rank that is not a member of any of the groups made by splitting `communicator` must call this, while the members
/// make their groups.
void split_as_non_member(const GroupHandle& parent, c10d::Backend& communicator);

/// The owner of the group that `plan` describes, of which this rank is a member. With Connect::kAtOnce every member
/// must call it, and it throws std::runtime_error, naming the missing ranks, when a member does not call it within the
/// timeout; with Connect::kAtFirstUse the first operation on the group does so.
ProcessGroup make_sub_group(const GroupHandle& parent, SubGroupPlan plan, Connect when);

/// "(0, 2, 4)".
std::string text_of_ranks(const std::vector<int>& ranks);

}  // namespace ddp::detail
