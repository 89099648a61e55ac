#include "comm/absent_ranks.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "comm/store_keys.h"

namespace ddp::detail {
namespace {

constexpr const char* kNoSignature = "1";

// Drops the ranks that need not be waited for from `silent`: those that have reported that collective `operation`
// failed, and those that run Python, which do not report.
void drop_reported(c10d::Store& store, uint64_t operation, std::vector<int>& silent) {
  std::erase_if(silent, [&](int rank) {
    return store.check({keys::failed(operation, rank)}) || !store.check({keys::present(rank)});
  });
}

// The first rank that called something else in the same place.
std::string first_difference(c10d::Store& store, uint64_t operation, const std::string& signature, int size) {
  for (int rank = 0; rank < size; ++rank) {
    const std::string key = keys::failed(operation, rank);
    if (!store.check({key})) continue;
    const std::vector<uint8_t> value = store.get(key);
    const std::string other(value.begin(), value.end());
    if (other == kNoSignature || other == signature) continue;
    return "; the ranks disagree: rank " + std::to_string(rank) + " called " + other + ", this rank " + signature;
  }
  return "";
}

}  // namespace

std::string absent_ranks(const GroupState& state, uint64_t operation, const std::string& signature) {
  const auto store = state.store();
  if (!store) return "";
  const RankInfo& info = state.info();
  std::vector<int> silent(static_cast<size_t>(info.world_size));
  std::iota(silent.begin(), silent.end(), 0);
  std::string text;
  bool looked = false;
  bool store_is_gone = false;
  try {
    store->set(keys::failed(operation, info.rank), signature.empty() ? kNoSignature : signature);
    constexpr auto kLongestWait = std::chrono::seconds(1);
    constexpr auto kPollInterval = std::chrono::milliseconds(10);
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    for (;;) {
      drop_reported(*store, operation, silent);
      looked = true;
      if (silent.empty() || std::chrono::steady_clock::now() > deadline) break;
      std::this_thread::sleep_for(kPollInterval);
    }
    if (!signature.empty()) text = first_difference(*store, operation, signature, info.world_size);
    // Those known to have left are the cause; others may still be waiting in the same collective.
    std::vector<int> left;
    for (const int rank : silent) {
      if (store->check({keys::exited(rank)})) left.push_back(rank);
    }
    if (!left.empty()) silent = std::move(left);
  } catch (const std::exception&) {
    store_is_gone = true;
  }
  for (size_t i = 0; looked && i < silent.size(); ++i) {
    text += (i == 0 ? "; did not take part in it: rank " : ", ") + std::to_string(silent[i]);
  }
  if (store_is_gone && !info.agent_store) text += "; the job's store, which rank 0 hosts, is gone";
  return text;
}

}  // namespace ddp::detail
