// Internal: the operations of one rank in one group, and the threads that drive them. The thread that waits for one
// does the work itself, so a call that is waited for at once needs no second thread; operations without a waiting
// thread are done by a thread of the engine, which is started when there is such an operation for the first time. It
// works at once on what other ranks wait for, and after a moment on what only this rank needs: its starter mostly waits
// for it soon. A callback may wait for other operations, so another thread is started where all are in callbacks. No
// LibTorch.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/shm/driver.h"

namespace ddp::shm {

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  using Clock = Operation::Clock;

  /// All ranks have attached to `segment`. `shares_processors`: see must_share_processors(); `numbers`: see Peers.
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
  /// Makes the operation that continues one that is not done at once.
  using MakeContinuation = std::function<JointPtr()>;
  /// The same for an operation in memory of the caller. Returns null if it completed within a few passes, else what
  /// `make_continuation` has made of it, which has ended. `observer` may be null.
  JointPtr run(JointOperation& operation, const MakeContinuation& make_continuation, WaitObserver* observer);
  /// Until it has ended, or `limit` expires, which returns false and leaves it running. Does not throw its error.
  bool wait(const Operation& operation, std::optional<std::chrono::milliseconds> limit = std::nullopt);
  /// Does what can be done now.
  void poll();
  /// A callback waits for operations: the thread does not delay them.
  void make_urgent();
  /// The message must end within `timeout` from now, otherwise it fails.
  void limit(Message& message, std::chrono::milliseconds timeout);
  /// Waits until the joint operations have ended or timed out; messages that have not ended then fail with `why`. With
  /// `has_failed` it does not wait: operations and messages fail, and so do those operations of other ranks that need
  /// this rank. They get this rank's first failure, or `why` if there was none. Only the first call has an effect, but
  /// a later call with `has_failed` ends the wait of the first.
  void stop(const std::string& why, bool has_failed);

 private:
  using Lock = std::unique_lock<detail::SpinLock>;

  Engine(Segment segment, int rank, bool shares_processors, std::vector<int> numbers);

  void start_thread();
  void run_thread();
  void check_joint_usable() const;
  void begin(Lock& lock);
  void work(Lock& lock, const Driver::Limit& limit, SpinPolicy& policy);
  void subtract_pending(size_t ended);
  void hand_over();
  void call_callbacks(Lock& lock, const std::vector<OperationPtr>& ended);
  bool is_needed_by_others() const;
  void check_later(Lock& lock);
  void await_role(Lock& lock);
  void finish(Lock& lock);

  OperationQueue queue_;
  Driver driver_;
  SpinPolicy caller_policy_;
  SpinPolicy thread_policy_;

  // With the queue's lock.
  std::condition_variable_any changed_;     // an operation has ended, or no thread drives any more
  std::condition_variable_any for_thread_;  // there is work that no thread does
  bool is_driven_ = false;
  bool has_left_ = false;
  int waiting_ = 0;            // threads for changed_
  size_t pending_ = 0;         // operations that have not ended
  uint64_t started_ = 0;       // operations
  bool is_urgent_ = false;     // the thread shall not look later
  bool checks_later_ = false;  // it decided so itself
  std::vector<std::thread> threads_;
  int usable_threads_ = 0;  // those that are not in callbacks
};

}  // namespace ddp::shm
