// Who waits for which keys of the store, in the order in which they came. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/nodes/store/memory_budget.h"
#include "launcher/nodes/store/reply_queue.h"

namespace launcher::store {

class Waiters {
 public:
  explicit Waiters(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // `connection` waits for `missing` keys from now on, and for nothing else. False when that is none: it need not wait.
  bool wait(ConnectionId connection, const std::vector<std::string>& missing);
  // It waits for nothing any more.
  void forget(ConnectionId connection);
  // `key` is there now. Those who miss nothing else wait no longer: the first of them comes first.
  std::vector<ConnectionId> take_ready(const std::string& key);
  // `key` is there for one of them only: the first who misses nothing else, or nobody; then the others know of it.
  std::vector<ConnectionId> take_first_ready(const std::string& key);

 private:
  struct Waiter {
    std::uint64_t arrival = 0;        // its place in the order of waiting
    std::size_t missing = 0;          // keys not seen yet
    std::vector<std::string> keys{};  // those it was registered for
    Charge charge{};
  };

  std::shared_ptr<MemoryBudget> budget_;
  std::unordered_map<ConnectionId, Waiter> waiters_;
  std::unordered_map<std::string, std::map<std::uint64_t, ConnectionId>> waiting_for_;  // in order of arrival
  std::uint64_t next_arrival_ = 0;
};

}  // namespace launcher::store
