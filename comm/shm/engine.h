// Internal: drives the operations of one rank in one group. Whoever waits for one does the work itself, so a call that
// is waited for at once needs no second thread; what nobody waits for is done by a thread of the engine, which is
// started when there is such an operation for the first time. It works at once on what other ranks wait for, and after
// a moment on what is this rank's own affair: whoever started that mostly comes to wait for it. No LibTorch.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/spin_lock.h"
#include "comm/shm/mailbox.h"
#include "comm/shm/meanwhile.h"
#include "comm/shm/patience.h"
#include "comm/shm/peers.h"
#include "comm/shm/processor_choice.h"

namespace ddp::shm {

/// What it says.
std::string text_of(const std::exception_ptr& error);

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  using Clock = Operation::Clock;
  using JointPtr = std::shared_ptr<JointOperation>;
  using MessagePtr = std::shared_ptr<Message>;

  /// All ranks have attached to `segment`. `shares_processors`: see has_to_share(); `numbers`: see Peers.
  static std::shared_ptr<Engine> make(Segment segment, int rank, bool shares_processors, std::vector<int> numbers = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Begins an operation without waiting for anybody. Throws what the group has failed with, a joint operation also
  /// where another rank has given up.
  void start(JointPtr operation);
  void start(MessagePtr message);
  /// start() and wait().
  void run(const JointPtr& operation);
  /// Makes what goes on with an operation that is not done at once.
  using Hold = std::function<JointPtr()>;
  /// The same, of an operation in memory of the caller's. Null where it was done within a few looks, else what `hold`
  /// has made of it, which has ended. `meanwhile` may be null.
  JointPtr run(JointOperation& operation, const Hold& hold, Meanwhile* meanwhile);
  /// Until it has ended, or `limit` is over, which returns false and leaves it going. Does not throw its error.
  bool wait(const Operation& operation, std::optional<std::chrono::milliseconds> limit = std::nullopt);
  /// Does what can be done now.
  void poll();
  /// Somebody is told when operations end, and does not wait for them here.
  void hurry();
  /// From now on it has so long, then it fails.
  void limit(Message& message, std::chrono::milliseconds timeout);
  /// Waits until the joint operations have ended, as long as their timeouts let them, and makes messages that have not
  /// ended fail with `why`. `has_failed`: does not wait, so that both fail, and those of other ranks that need this
  /// one; they are told the first failure that this rank has had, `why` if there was none. The first call counts, but a
  /// later one that has failed ends its waiting.
  void stop(const std::string& why, bool has_failed);

 private:
  using Lock = std::unique_lock<detail::SpinLock>;
  using OperationPtr = std::shared_ptr<Operation>;
  struct Limit {
    const Operation* until = nullptr;  ///< return when it has ended; null: when there is nothing left
    std::optional<Clock::time_point> time{};
    bool one_pass = false;      ///< return when nothing moves
    bool is_finishing = false;  ///< do not return because the engine is being stopped
  };

  Engine(Segment segment, int rank, bool shares_processors, std::vector<int> numbers);

  void run_thread();
  void check_usable() const;
  void check_joint_usable() const;
  void begin(Lock& lock);
  void work(Lock& lock, const Limit& limit, Patience& patience);
  void hand_over();
  void tell(Lock& lock, const std::vector<OperationPtr>& ended);
  bool concerns_others() const;
  void look_later(Lock& lock);
  void await_role(Lock& lock);
  void finish(Lock& lock);

  // By whoever has the role of the driver, without the lock.
  void drive(const Limit& limit, Patience& patience);
  void take_new();
  bool advance();
  bool is_done_at_once(JointOperation& operation, Meanwhile* meanwhile);
  bool is_over(const Limit& limit) const;
  bool has_to_stop(const Limit& limit) const;
  bool is_idle() const { return joints_.empty() && mailbox_.is_empty(); }
  std::vector<int> awaited_ranks() const;
  bool is_neighbour(int rank) const { return room_.shares_processor_with(rank); }
  bool awaits_neighbour() const;
  void leave_neighbours(const std::vector<int>& awaited, int processor_before);
  bool sleep(const Limit& limit);
  struct Trouble {
    std::string text;
    std::optional<int> gone{};  ///< the rank that will do nothing any more; without one, time is over
  };
  void look_for_trouble_if_due();
  void look_for_trouble(bool thoroughly);
  std::optional<Trouble> trouble_of(Operation& operation, const Awaited& awaited, bool thoroughly);
  void begin_turn(Operation& operation);
  void end(OperationPtr operation, std::exception_ptr error);
  void fail_all(std::exception_ptr error);
  void end_all(const std::exception_ptr& error);

  Room room_;
  Peers peers_;
  Patience caller_patience_;
  Patience thread_patience_;

  detail::SpinLock mutex_;
  std::condition_variable_any changed_;     // an operation has ended, or the role of the driver is free
  std::condition_variable_any for_thread_;  // there is work that nobody does
  bool is_driven_ = false;
  bool has_left_ = false;
  int waiting_ = 0;
  size_t pending_ = 0;
  uint64_t started_ = 0;      // operations
  bool is_urgent_ = false;    // the thread shall not look later
  bool looks_later_ = false;  // it does so by itself
  std::vector<JointPtr> new_joints_;
  std::vector<MessagePtr> new_messages_;
  std::atomic<bool> has_new_{false};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_aborting_{false};
  std::exception_ptr failure_;  // of the group: nothing can be started any more
  std::thread thread_;

  // The driver's.
  std::deque<JointPtr> joints_;
  Mailbox mailbox_;
  MovePause move_pause_;
  uint32_t turns_ = 0;
  Clock::time_point looked_at_{};  // thoroughly
  std::vector<OperationPtr> ended_;
  std::vector<Mailbox::Ended> ended_messages_;
  std::exception_ptr first_error_;
};

}  // namespace ddp::shm
