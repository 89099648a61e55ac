#include "comm/group/peers.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "comm/group/desync_debugger.h"
#include "comm/group/store_keys.h"

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> keys_of(const std::vector<int>& ranks, RankKey key) {
  std::vector<std::string> all;
  all.reserve(ranks.size());
  for (const int rank : ranks) all.push_back(key(rank));
  return all;
}

std::vector<int> other_ranks(const RankInfo& info, c10d::Store& store) {
  std::vector<int> others;
  for (int rank = 0; rank < info.world_size; ++rank) {
    if (rank != info.rank) others.push_back(rank);
  }
  // Usually one request is enough.
  if (others.empty() || store.check(keys_of(others, keys::present))) return others;
  std::erase_if(others, [&](int rank) { return !store.check({keys::present(rank)}); });
  return others;
}

}  // namespace

void limit_store_calls(const JobServices& job) {
  constexpr auto kMaxCallTime = std::chrono::milliseconds(800);
  if (job.bounded) job.bounded->set_limit(kMaxCallTime);
}

void wait_for_ranks(const RankInfo& info, const JobServices& job, c10d::Store& store,
                    const std::vector<RankKey>& rank_keys, std::chrono::milliseconds limit) noexcept {
  constexpr auto kPollInterval = std::chrono::milliseconds(5);
  try {
    const auto deadline = Clock::now() + limit;
    const BoundedStore::Budget budget(job.bounded, limit);
    std::vector<int> others = other_ranks(info, store);
    for (;;) {
      if (others.empty() || store.check(keys_of(others, rank_keys.front()))) return;
      std::erase_if(others, [&](int rank) {
        return std::ranges::any_of(rank_keys, [&](RankKey key) { return store.check({key(rank)}); });
      });
      if (others.empty() || Clock::now() > deadline) return;
      std::this_thread::sleep_for(kPollInterval);
    }
  } catch (const std::exception&) {  // the store has closed, so its host has ended
  }
}

void wait_until_failure_is_known(const RankInfo& info, const JobServices& job) noexcept {
  using std::chrono::milliseconds;
  constexpr auto kMinWait = milliseconds(800);
  // Another rank may notice the failure later, and then asks for just as long.
  constexpr auto kMaxTimeSinceFailure = milliseconds(1950);
  const auto failed = job.desync_debugger->first_failure();
  const auto left = failed ? std::chrono::ceil<milliseconds>(*failed + kMaxTimeSinceFailure - Clock::now()) : kMinWait;
  wait_for_ranks(info, job, *job.store, {keys::learned, keys::exited, keys::silent}, std::max(left, kMinWait));
}

}  // namespace ddp::detail
