// A connection to the job's store that never waits longer than its limit, whatever the store does: closed, frozen,
// slow or gone. torch's own client has no limit on most receives, and lets no thread call while another one waits for a
// key. Speaks TCPStore's protocol. Does not use LibTorch.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "comm/core/fair_lock.h"

namespace ddp::detail {

/// The store did not answer within the limit, or the connection broke. The connection is of no use afterwards.
struct StoreUnreachable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class StoreConnection {
 public:
  using Duration = std::chrono::milliseconds;

  /// Connects to a store that runs, or if `patient` to one that will run within the limit. Throws StoreUnreachable, as
  /// every call does, which says that `hosted_by` ("rank 0") runs the store.
  StoreConnection(std::string host, uint16_t port, Duration limit, bool patient = false, std::string hosted_by = "");
  ~StoreConnection();
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  // Each throws StoreUnreachable after `limit` at the latest. From any thread; a wait() of another thread lets the call
  // pass.
  void set(std::string_view key, std::string_view value, Duration limit);
  std::string get(std::string_view key, Duration limit);
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired, Duration limit);
  int64_t add(std::string_view key, int64_t increment, Duration limit);
  bool check(const std::vector<std::string>& keys, Duration limit);
  int64_t delete_key(std::string_view key, Duration limit);
  int64_t number_of_keys(Duration limit);

  enum class Wait { kReady, kTimeout, kInterrupted };
  /// Waits until all keys exist; the store is asked at least once, also when `limit` has passed. Afterwards the store
  /// has `grace` for its last answer. From any number of threads: to one that waits alone the store answers as soon as
  /// the keys exist. As soon as another thread calls, the store is asked to forget the wait, and is asked again
  /// afterwards. While several threads wait, each of them looks from time to time, since a connection can have one wait
  /// only.
  Wait wait(const std::vector<std::string>& keys, Duration limit, Duration grace = kGrace);
  /// Ends the present and every later call at once; from another thread. The connection is of no use afterwards.
  void interrupt() noexcept;

  static constexpr Duration kGrace{1000};

 private:
  class Deadline;
  class Lock;
  class Waiter;

  void connect(const Deadline& deadline, bool patient);
  struct Failure {
    std::string why;
    bool is_final = false;  // waiting would not help
  };
  Failure try_to_connect(const Deadline& deadline);
  void request(const std::string& bytes, const Deadline& deadline);
  void receive(char* out, size_t count, const Deadline& deadline);
  template <typename Integer>
  Integer receive_integer(const Deadline& deadline);
  bool receive_word(uint8_t yes, uint8_t no, const Deadline& deadline);
  std::string receive_text(const Deadline& deadline);
  bool wait_for(short events, const Deadline& deadline, bool interruptible) const;
  std::optional<Wait> wait_in_store(const std::vector<std::string>& keys, const Deadline& deadline,
                                    const Deadline& latest);
  std::optional<Wait> check_once(const std::vector<std::string>& keys, const Deadline& deadline,
                                 const Deadline& latest);
  bool check(const std::vector<std::string>& keys, const Deadline& deadline);
  [[noreturn]] void fail(const std::string& why);

  const std::string host_;
  const uint16_t port_;
  const std::string name_;  // of the store, for errors
  FairLock call_lock_;      // for the connection
  int fd_ = -1;
  std::string closed_because_;  // what the call that failed said
  int interrupt_fd_ = -1;
  std::atomic<bool> is_interrupted_{false};
  std::mutex waiters_mutex_;
  std::condition_variable waiters_changed_;
  int waiters_ = 0;  // threads in wait()
};

}  // namespace ddp::detail
