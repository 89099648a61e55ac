#include "comm/group/failure_cause.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "comm/core/culprit_ranks.h"
#include "comm/group/bounded_store.h"
#include "comm/group/desync_debugger.h"
#include "comm/group/peers.h"
#include "comm/group/store_keys.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;

// This is a part of the two seconds that the documentation promises. A rank that is only busy answers within the first
// second.
constexpr auto kMaxAnswerTime = 900ms;
constexpr auto kVerdictTimeout = 1000ms;
constexpr auto kMaxSearchTime = 1950ms;
constexpr auto kPollInterval = 5ms;
constexpr auto kPause = 30ms;

using Clock = std::chrono::steady_clock;

// The state that a rank has published by itself: that it has left, or that a collective failed there too.
RankState reported_state(c10d::Store& store, int rank) {
  if (store.check({keys::failed(rank)})) {
    return {.kind = RankState::Kind::kFailed, .report = report_from(get_text(store, keys::failed(rank)))};
  }
  for (const std::string& key : {keys::exited(rank), keys::closing(rank)}) {
    if (!store.check({key})) continue;
    const std::string text = get_text(store, key);
    const size_t line = text.find('\n');
    const bool closed = text.compare(0, line, keys::kClosed) == 0;
    return {.kind = closed ? RankState::Kind::kClosed : RankState::Kind::kLeftOnError,
            .report = report_from(line == std::string::npos ? "0" : text.substr(line + 1))};
  }
  return {.kind = RankState::Kind::kSilent};
}

// A failure in one group as this rank sees it.
struct Failure {
  const RankInfo& info;
  c10d::Store& store;  // our own keys of the group
  const JobServices& job;
  const std::string& path;
  const std::vector<int>& members;
  RankReport own;
  std::function<RankState::Kind(int rank)> without_announcement;
  std::function<std::string(const std::vector<RankState>&)> describe_culprits;
  bool adopts = true;  // whether another rank's verdict applies here too
};

// The states of all ranks of the group, as far as they are known by `deadline`.
std::vector<RankState> collect_states(const Failure& failure, Clock::time_point deadline) {
  c10d::Store& store = failure.store;
  std::vector<RankState> ranks(failure.members.size());
  std::vector<int> asked;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int number = static_cast<int>(rank);
    if (!store.check({keys::present(number)})) {
      ranks[rank] = {.kind = failure.without_announcement(number)};
      continue;
    }
    ranks[rank] = reported_state(store, number);
    if (ranks[rank].kind == RankState::Kind::kSilent) asked.push_back(failure.members[rank]);
  }
  ranks[static_cast<size_t>(failure.info.rank)] = {.kind = RankState::Kind::kFailed, .report = failure.own};
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  const auto reports = failure.job.desync_debugger->ask(*failure.job.store, failure.path, asked, limit);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].kind != RankState::Kind::kSilent) continue;
    const auto report = reports.find(failure.members[rank]);
    ranks[rank] = report != reports.end()
                      ? RankState{.kind = RankState::Kind::kAnswered, .report = report->second}
                      : reported_state(store, static_cast<int>(rank));  // it may have left since then
  }
  return ranks;
}

std::string determine_cause(const Failure& failure) {
  const auto deadline = Clock::now() + kMaxAnswerTime;
  std::vector<RankState> ranks = collect_states(failure, deadline);
  while (is_undecided(ranks) && Clock::now() + kPause < deadline) {
    std::this_thread::sleep_for(kPause);
    ranks = collect_states(failure, deadline);
  }
  c10d::Store& job_store = *failure.job.store;
  std::vector<int> informed;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int in_job = failure.members[rank];
    const bool is_other = static_cast<int>(rank) != failure.info.rank;
    const RankState::Kind kind = ranks[rank].kind;
    if (is_other && (kind == RankState::Kind::kAnswered || kind == RankState::Kind::kFailed))
      informed.push_back(in_job);
    if (kind == RankState::Kind::kSilent) job_store.set(keys::silent(in_job), to_bytes("1"));
  }
  std::string verdict = failure.describe_culprits(ranks);
  failure.store.set(keys::verdict(), to_bytes(verdict));
  // Last, since the store may exit as soon as those ranks have failed.
  failure.job.desync_debugger->send_verdict(job_store, failure.path, informed, verdict);
  return verdict;
}

// The verdict of the rank that failed first; empty if none arrives in time.
std::string await_verdict(c10d::Store& store) {
  const auto deadline = Clock::now() + kVerdictTimeout;
  while (!store.check({keys::verdict()})) {
    if (Clock::now() > deadline) return "";
    std::this_thread::sleep_for(kPollInterval);
  }
  return get_text(store, keys::verdict());
}

// The rank that hosts the store may leave once all ranks have set this.
void mark_learned(const Failure& failure) {
  const int in_job = failure.members[static_cast<size_t>(failure.info.rank)];
  try {
    failure.job.store->set(keys::learned(in_job), to_bytes("1"));
  } catch (const std::exception&) {  // the store's host has left; the verdict is still valid
  }
}

std::string find_cause(const Failure& failure) {
  DesyncDebugger& desync_debugger = *failure.job.desync_debugger;
  desync_debugger.note_failure();
  const auto deadline = Clock::now() + kMaxSearchTime;
  const std::unique_lock first(desync_debugger.cause_search_mutex(), deadline);
  const auto known = desync_debugger.verdict_of(failure.path);
  if (failure.adopts && known && !known->empty()) return *known;
  const BoundedStore::Budget budget(failure.job.bounded,
                                    std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
  try {
    // First publishes that this rank is alive and where it is: other ranks may ask at the same moment.
    failure.store.set(keys::failed(failure.info.rank), to_bytes(to_text(failure.own)));
    std::string verdict;
    if (failure.adopts && failure.store.add(keys::investigators(), 1) > 1) verdict = await_verdict(failure.store);
    // The first investigator may have found nothing, or may have ended.
    if (verdict.empty()) verdict = determine_cause(failure);
    desync_debugger.set_verdict(failure.path, verdict);
    mark_learned(failure);
    return verdict;
  } catch (const StoreOutOfTime& error) {
    return desync_debugger.verdict_of(failure.path)
        .value_or(std::string("; it could not be determined in time which ranks are missing: ") + error.what());
  } catch (const std::exception& error) {
    // No verdict was received: the store's host has failed too, and left.
    return desync_debugger.verdict_of(failure.path).value_or(about_store(failure.info, error.what()));
  }
}

std::string cause_in(GroupState& state, std::function<std::string(const std::vector<RankState>&)> describe_culprits,
                     bool adopts) {
  const auto store = state.store();
  if (!store) return "";
  state.limit_store_calls();
  return find_cause({.info = state.info(),
                     .store = *store,
                     .job = state.job(),
                     .path = state.path(),
                     .members = state.members(),
                     .own = state.log().report(),
                     .without_announcement = [](int) { return RankState::Kind::kUnknown; },
                     .describe_culprits = std::move(describe_culprits),
                     .adopts = adopts});
}

}  // namespace

std::string store_host(const RankInfo& info) {
  return info.agent_store ? "the launcher" : "rank 0";
}

std::string about_store(const RankInfo& info, const std::string& problem) {
  return "; which ranks are missing is not known: the job's store, which " + store_host(info) +
         " hosts, does not answer (" + problem + ")";
}

std::string failure_cause(GroupState& state, uint64_t number) {
  return cause_in(
      state, [number](const auto& ranks) { return culprits_text(ranks, number); }, /*adopts=*/true);
}

std::string comparison_failure_cause(GroupState& state) {
  // A rank that has called a collective since then has blamed the ranks that compare.
  return cause_in(state, connect_culprits_text, /*adopts=*/false);
}

std::string connect_failure_cause(const ConnectingGroup& group) {
  if (!group.store) return "";
  limit_store_calls(group.job);
  std::string cause =
      find_cause({.info = group.info,
                  .store = *group.store,
                  .job = group.job,
                  .path = group.path,
                  .members = group.members,
                  .own = {},
                  .without_announcement =
                      [&](int rank) {
                        return group.may_be_there(rank) ? RankState::Kind::kUnknown : RankState::Kind::kNeverArrived;
                      },
                  .describe_culprits = connect_culprits_text});
  return cause;
}

}  // namespace ddp::detail
