// Internal: the job's store for our own keys, as c10d's interface, over a connection that keeps to its timeout.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/core/store_connection.h"

namespace ddp::detail {

inline std::vector<uint8_t> to_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// Waits for the key, as get() does.
inline std::string get_text(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

/// Keys and values are those of c10d::TCPStore on the same host and port. Every call returns or throws
/// StoreUnreachable within the limit, at first the timeout; wait() throws c10::Error at its own, and StoreUnreachable
/// if the store has not answered for the limit (at least one second, at most ten) after that. From any thread: a
/// wait excludes no other call, see StoreConnection.
class BoundedStore final : public c10d::Store {
 public:
  /// `patient`: until the timeout, waits for a store that does not run yet. `hosted_by`: see StoreConnection.
  BoundedStore(std::string host, uint16_t port, std::chrono::milliseconds timeout, bool patient = false,
               std::string hosted_by = "");

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  /// Waits for the key, as TCPStore does.
  std::vector<uint8_t> get(const std::string& key) override;
  /// Waits for the key for `timeout`, whatever the limit is.
  std::vector<uint8_t> get(const std::string& key, std::chrono::milliseconds timeout);
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

  /// Sets the time limit of all further calls, in any thread.
  void set_limit(std::chrono::milliseconds limit) { limit_.store(limit, std::memory_order_relaxed); }

  class Budget;

  /// Counts this process among the store's clients, for which a server that runs Python may wait.
  void count_in() { connection_.add("init/", 1, limit()); }

  /// Ends every wait() under way; the store is of no use afterwards.
  void interrupt() noexcept { connection_.interrupt(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds limit() const;
  std::chrono::milliseconds within_budget(std::chrono::milliseconds limit) const;

  const std::string host_;
  const uint16_t port_;
  const std::string hosted_by_;
  std::atomic<std::chrono::milliseconds> limit_;
  mutable std::mutex mutex_;
  std::map<std::thread::id, Clock::time_point> budgets_;  // of the threads that have one: when they are used up
  StoreConnection connection_;
};

/// Several calls have taken too long together; the store answers.
struct StoreOutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// All calls of this thread while it lives have to end within `budget`; they throw StoreOutOfTime afterwards. One
/// inside another one cannot extend that. Of a null store: nothing.
class BoundedStore::Budget {
 public:
  Budget(c10::intrusive_ptr<BoundedStore> store, std::chrono::milliseconds budget);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

 private:
  const c10::intrusive_ptr<BoundedStore> store_;
  Clock::time_point outer_ = Clock::time_point::max();
};

}  // namespace ddp::detail
