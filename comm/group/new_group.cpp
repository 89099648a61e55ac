#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/joined.h"
#include "comm/core/graph_capture.h"
#include "comm/group/argument_checks.h"
#include "comm/group/connect_group.h"
#include "comm/group/group_state.h"
#include "comm/group/sub_group.h"
#include "comm/group/verify_across_ranks.h"
#include "ddprun/comm/process_group.h"

namespace ddp {
namespace {

using detail::text_of_ranks;

void check_ranks(std::vector<int>& ranks, const GroupHandle& group, const char* operation) {
  if (ranks.empty()) detail::refuse(group, operation, "the list of ranks is empty");
  std::sort(ranks.begin(), ranks.end());
  detail::check_rank(ranks.front(), "member", group, operation);
  detail::check_rank(ranks.back(), "member", group, operation);
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice != ranks.end()) detail::refuse(group, operation, "rank " + std::to_string(*twice) + " is listed twice");
}

// `lists` have no rank in common. The list that contains this rank becomes a group.
std::optional<ProcessGroup> new_groups(const GroupHandle& group, std::vector<std::vector<int>> lists,
                                       const NewGroupOptions& options, const char* operation) {
  detail::GroupState& parent = group.state();
  static_cast<void>(parent.group(operation));  // open
  std::vector<int> all;
  for (std::vector<int>& ranks : lists) {
    check_ranks(ranks, group, operation);
    all.insert(all.end(), ranks.begin(), ranks.end());
  }
  check_ranks(all, group, operation);
  detail::refuse_capture(who(group.info()) + ": " + operation, "it connects ranks. Make groups before the capture");
  const auto longest = std::ranges::max_element(lists, {}, &std::vector<int>::size);
  const BackendMap backends = detail::sub_group_backends(options.backend, *longest, group, operation);
  const auto timeout = options.timeout.value_or(parent.timeout());
  detail::check_timeout(group.info(), operation, timeout);
  const auto communicator = options.split ? detail::communicator_to_split(group, backends) : nullptr;
  // All ranks compare their requests before any of them connects, so that no rank waits for a rank that has refused.
  // Until then, each rank counts one group, however many it has listed. So the next groups have the same numbers on all
  // ranks.
  const int64_t first = parent.next_subgroup();
  std::vector<std::string> lines;
  for (const std::vector<int>& ranks : lists) {
    lines.push_back("ranks " + text_of_ranks(ranks) + ", backend " + backends.text() +
                    (options.split ? ", as a part of the group's communicator" : ""));
  }
  verify_equal_across_ranks("the groups of " + std::string(operation) + " (number " + std::to_string(first) + ")",
                            lines, group, timeout);
  std::optional<detail::SubGroupPlan> own;
  for (size_t i = 0; i < lists.size(); ++i) {
    const int64_t number = i == 0 ? first : parent.next_subgroup();
    if (std::ranges::find(lists[i], group.rank()) == lists[i].end()) continue;
    own = {.number = number,
           .ranks = lists[i],
           .backends = backends,
           .timeout = timeout,
           .subject = operation + (": could not connect ranks " + text_of_ranks(lists[i])),
           .split = {.from = communicator, .color = static_cast<int>(i) + 1}};
  }
  if (!own && communicator) detail::split_as_non_member(group, *communicator);
  if (!own) return std::nullopt;
  return detail::make_sub_group(group, *std::move(own), detail::Connect::kAtOnce);
}

}  // namespace

std::optional<ProcessGroup> new_group(const GroupHandle& group, std::vector<int> ranks,
                                      const NewGroupOptions& options) {
  return new_groups(group, {std::move(ranks)}, options, "new_group");
}

ProcessGroup new_subgroups(const GroupHandle& group, int group_size, const NewGroupOptions& options) {
  const int size = group.size();
  if (group_size < 1 || group_size > size || size % group_size != 0) {
    detail::refuse(group, "new_subgroups",
                   "expected a size of the sub-groups that divides the group's size " + std::to_string(size) +
                       ", got " + std::to_string(group_size));
  }
  std::vector<std::vector<int>> lists(static_cast<size_t>(size / group_size));
  for (int rank = 0; rank < size; ++rank) lists[static_cast<size_t>(rank / group_size)].push_back(rank);
  return *new_groups(group, std::move(lists), options, "new_subgroups");
}

std::optional<ProcessGroup> new_subgroups_by_enumeration(const GroupHandle& group,
                                                         std::vector<std::vector<int>> ranks_per_subgroup,
                                                         const NewGroupOptions& options) {
  if (ranks_per_subgroup.empty()) {
    detail::refuse(group, "new_subgroups_by_enumeration", "the list of sub-groups is empty");
  }
  return new_groups(group, std::move(ranks_per_subgroup), options, "new_subgroups_by_enumeration");
}

}  // namespace ddp
