// Sub-groups: collectives among some of the ranks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Settings of new_group(), all optional.
struct NewGroupOptions {
  /// As ProcessGroupOptions::backend; empty: that of the group it is made from.
  std::string backend{};
  /// Longest wait for a peer; default: that of the group it is made from.
  std::optional<std::chrono::milliseconds> timeout{};
};

/// Connects some ranks of `group` as a group of their own and returns its owner; nullopt on ranks that do not belong to
/// it. Every rank of `group` must call it, the others too, with the same list in the same order of calls; only the
/// members wait for each other. Ranks in the new group follow those in `group`, whatever the order of the list, as in
/// torch.distributed.new_group(), which ranks that run Python can call as counterpart.
///
/// The owner must be closed or destroyed before that of `group`. Independent streams of collectives (metrics, a stop
/// flag, another thread) each need a group of their own. Throws std::invalid_argument for an empty list, a rank twice
/// or none of the group's, and std::runtime_error when the ranks' lists differ (both are named) or a member does not
/// come.
std::optional<ProcessGroup> new_group(const GroupHandle& group, std::vector<int> ranks,
                                      const NewGroupOptions& options = {});

}  // namespace ddp
