#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/joined.h"
#include "comm/backends/backend_types.h"
#include "comm/core/backend_map.h"
#include "comm/core/graph_capture.h"
#include "comm/group/argument_checks.h"
#include "comm/group/connect_group.h"
#include "comm/group/failure_cause.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"
#include "comm/group/store_keys.h"
#include "comm/group/verify_across_ranks.h"
#include "ddprun/comm/process_group.h"

namespace ddp {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

std::string text_of(const std::vector<int>& ranks) {
  return std::string("(").append(detail::joined(ranks)).append(")");
}

void check_ranks(std::vector<int>& ranks, const GroupHandle& group) {
  if (ranks.empty()) detail::refuse(group, "new_group", "the list of ranks is empty");
  std::sort(ranks.begin(), ranks.end());
  detail::check_rank(ranks.front(), "member", group, "new_group");
  detail::check_rank(ranks.back(), "member", group, "new_group");
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice != ranks.end()) detail::refuse(group, "new_group", "rank " + std::to_string(*twice) + " is listed twice");
}

BackendMap backends_for(const std::string& named, const std::vector<int>& ranks, const GroupHandle& group) {
  const BackendMap& of_parent = detail::backends_of(group);
  if (named.empty()) return of_parent;
  const BackendMap backends = parse_backend_map(named, detail::known_backends());
  const BackendTraits* exclusive = backends.with(&BackendTraits::needs_cuda);
  if (exclusive != nullptr && of_parent.with(&BackendTraits::needs_cuda) == nullptr) {
    detail::refuse(
        group, "new_group",
        "backend '" + exclusive->name + "' needs a group that has a GPU per rank, not '" + of_parent.text() + "'");
  }
  if (!can_connect(backends, static_cast<int>(ranks.size()))) {
    detail::refuse(group, "new_group",
                   "backend '" + backends.text() + "' is for one rank, not for ranks " + text_of(ranks));
  }
  detail::check_backends(backends, group.info());
  return backends;
}

// The keys of the new group in our own part of the store; null where there is no store. All ranks compare what they
// want before any of them connects, so that none waits for one that has refused.
Store agree(const GroupHandle& group, int64_t number, const std::vector<int>& ranks, const BackendMap& backends,
            std::chrono::milliseconds timeout) {
  const Store parent = group.state().store();
  if (!parent) return nullptr;
  verify_equal_across_ranks("the groups of new_group (number " + std::to_string(number) + ")",
                            {"ranks " + text_of(ranks) + ", backend " + backends.text()}, group, timeout);
  return c10::make_intrusive<c10d::PrefixStore>(keys::subgroup(number), parent);
}

}  // namespace

std::optional<ProcessGroup> new_group(const GroupHandle& group, std::vector<int> ranks,
                                      const NewGroupOptions& options) {
  detail::GroupState& parent = group.state();
  const auto parent_group = parent.group("new_group");
  check_ranks(ranks, group);
  detail::refuse_capture(who(group.info()) + ": new_group", "it connects ranks. Make groups before the capture");
  const BackendMap backends = backends_for(options.backend, ranks, group);
  const auto timeout = options.timeout.value_or(parent.timeout());
  detail::check_timeout(group.info(), "new_group", timeout);
  const int64_t number = parent.next_subgroup();
  const Store own = agree(group, number, ranks, backends, timeout);
  const auto position = std::find(ranks.begin(), ranks.end(), group.rank());
  if (position == ranks.end()) return std::nullopt;

  RankInfo info = group.info();
  info.rank = static_cast<int>(position - ranks.begin());
  info.world_size = static_cast<int>(ranks.size());
  info.parent = who(group.info());
  const std::string path = parent.path() + keys::subgroup(number) + "/";
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(parent.members()[static_cast<size_t>(rank)]);
  detail::GroupState::Parts parts{.info = info,
                                  .backends = backends,
                                  .device = group.device(),
                                  .timeout = timeout,
                                  .store = own,
                                  .group = nullptr,
                                  .in_process = parent.in_process(),
                                  .job = parent.job(),
                                  .path = path,
                                  .members = members};
  try {
    if (own) own->set(keys::present(info.rank), std::string("1"));
    // torch.distributed names groups by a counter; those of a sub-group lie below its keys.
    auto connected = detail::connect_group({.info = info,
                                            .backends = backends,
                                            .device = group.device(),
                                            .timeout = timeout,
                                            .store = parent_group->getStore(),
                                            .name = std::to_string(number),
                                            .description = "sub-group",
                                            .members = parts.members,
                                            .in_process = parent.in_process()});
    parts.group = std::move(connected.group);
    parts.backends = connected.backends;
  } catch (const std::exception& error) {
    throw std::runtime_error(who(info) + ": new_group: could not connect ranks " + text_of(ranks) + " (backend " +
                             backends.text() + "): " + detail::message_of(error) +
                             detail::connect_failure_cause({.info = info,
                                                            .store = own,
                                                            .job = parent.job(),
                                                            .path = path,
                                                            .members = members,
                                                            .may_be_there = [&](int rank) {
                                                              return !group.state().store()->check(
                                                                  {keys::present(ranks[static_cast<size_t>(rank)])});
                                                            }}));
  }
  return ProcessGroup(std::make_shared<detail::GroupState>(std::move(parts)));
}

}  // namespace ddp
