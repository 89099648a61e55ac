#include "comm/failure_cause.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "comm/blame.h"
#include "comm/roll_call.h"
#include "comm/store_keys.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;

// Together less than the two seconds that are promised.
constexpr auto kLongestAnswer = 900ms;
constexpr auto kLongestVerdict = 1000ms;
constexpr auto kPollInterval = 5ms;

std::string read(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// What a rank has said without being asked: that it has left, or that a collective failed there as well.
RankState said(c10d::Store& store, int rank) {
  if (!store.check({keys::present(rank)})) return {.kind = RankState::Kind::kUnknown};
  if (store.check({keys::failed(rank)})) {
    return {.kind = RankState::Kind::kFailed, .report = report_from(read(store, keys::failed(rank)))};
  }
  if (store.check({keys::exited(rank)})) {
    const std::string text = read(store, keys::exited(rank));
    const size_t line = text.find('\n');
    const bool closed = text.compare(0, line, keys::kClosed) == 0;
    return {.kind = closed ? RankState::Kind::kClosed : RankState::Kind::kGaveUp,
            .report = report_from(line == std::string::npos ? "0" : text.substr(line + 1))};
  }
  return {.kind = RankState::Kind::kSilent};
}

std::string investigate(GroupState& state, c10d::Store& store, uint64_t number) {
  RollCall& roll_call = *state.job().roll_call;
  const int own = state.info().rank;
  const int size = state.info().world_size;
  std::vector<RankState> ranks(static_cast<size_t>(size));
  std::vector<int> asked;
  for (int rank = 0; rank < size; ++rank) {
    RankState& of_rank = ranks[static_cast<size_t>(rank)];
    of_rank = said(store, rank);
    if (of_rank.kind == RankState::Kind::kSilent) asked.push_back(state.members()[static_cast<size_t>(rank)]);
  }
  ranks[static_cast<size_t>(own)] = {.kind = RankState::Kind::kFailed, .report = state.log().report()};
  const auto reports = roll_call.ask(*state.job().store, state.path(), asked, kLongestAnswer);
  std::vector<int> living;
  for (int rank = 0; rank < size; ++rank) {
    RankState& of_rank = ranks[static_cast<size_t>(rank)];
    const int in_job = state.members()[static_cast<size_t>(rank)];
    if (of_rank.kind != RankState::Kind::kSilent) continue;
    if (const auto report = reports.find(in_job); report != reports.end()) {
      of_rank = {.kind = RankState::Kind::kAnswered, .report = report->second};
      living.push_back(in_job);
    } else {
      of_rank = said(store, rank);  // it may have left meanwhile
    }
  }
  std::string verdict = blame(ranks, number);
  store.set(keys::verdict(), bytes(verdict));
  // The store may be gone when those fail.
  if (!verdict.empty()) roll_call.tell(*state.job().store, state.path(), living, verdict);
  return verdict;
}

// The verdict of the rank that failed first; empty if none comes.
std::string await_verdict(c10d::Store& store) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestVerdict;
  while (!store.check({keys::verdict()})) {
    if (std::chrono::steady_clock::now() > deadline) return "";
    std::this_thread::sleep_for(kPollInterval);
  }
  return read(store, keys::verdict());
}

std::string about_store(const RankInfo& info, const std::string& problem) {
  const std::string host = info.agent_store ? "the launcher" : "rank 0";
  return "; who is missing cannot be told: the job's store, which " + host + " hosts, does not answer (" + problem + ")";
}

}  // namespace

std::string failure_cause(GroupState& state, uint64_t number) {
  const auto store = state.store();
  if (!store) return "";
  state.hurry();
  state.job().roll_call->note_failure();
  if (const auto told = state.job().roll_call->told(state.path())) return *told;
  try {
    // That this rank lives and where it is comes first: others may ask at the same moment.
    store->set(keys::failed(state.info().rank), bytes(to_text(state.log().report())));
    std::string verdict;
    if (store->add(keys::investigators(), 1) > 1) verdict = await_verdict(*store);
    // The first one may have found nothing, or be gone.
    return verdict.empty() ? investigate(state, *store, number) : verdict;
  } catch (const std::exception& error) {
    if (const auto told = state.job().roll_call->told(state.path())) return *told;
    return about_store(state.info(), error.what());
  }
}

}  // namespace ddp::detail
