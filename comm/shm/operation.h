// Internal: something that a rank does with others through shared memory, in steps that never block. No LibTorch.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/shm/futex_sleep.h"
#include "comm/shm/slot_access.h"

namespace ddp::shm {

/// What an operation waits for.
struct Awaited {
  WaitCondition condition = WaitCondition::any();
  std::vector<int> ranks{};  ///< that have not done it yet
  bool any_of_them = false;  ///< one of them suffices
};

/// Something that was started and has ended or not. Its starter keeps the memory until it has.
class Operation {
 public:
  using Clock = std::chrono::steady_clock;

  Operation() = default;
  /// One that has not been started.
  Operation(const Operation& other) : timeout_(other.timeout_.load()) {}
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  bool has_ended() const { return ended_.load(std::memory_order_acquire); }
  /// What it has failed with; null before it has ended.
  std::exception_ptr error() const { return has_ended() ? error_ : nullptr; }

  /// Before it is started: how long it may take from when its turn comes, and what is called when it has ended, in
  /// whichever thread that was; must not throw.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_.store(timeout.count()); }
  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_.load()); }
  void set_on_end(std::function<void()> on_end) { on_end_ = std::move(on_end); }
  /// Its end calls functions of the program, which may wait for other operations. From any thread.
  void set_calls_program() { calls_program_.store(true, std::memory_order_relaxed); }
  bool calls_program() const { return calls_program_.load(std::memory_order_relaxed); }
  /// In place of the timeout, also of one that has been started.
  void set_deadline(Clock::time_point deadline) { deadline_.store(deadline.time_since_epoch().count()); }

 private:
  friend class Driver;
  friend class Engine;

  std::atomic<bool> ended_{false};
  std::exception_ptr error_;
  std::function<void()> on_end_;
  std::atomic<bool> calls_program_{false};
  std::atomic<std::chrono::milliseconds::rep> timeout_{std::chrono::milliseconds(std::chrono::minutes(30)).count()};
  std::atomic<Clock::rep> deadline_{0};  // 0: its turn has not come
};

/// One that all ranks do together, one after the other in the order in which they were started.
class JointOperation : public Operation {
 public:
  /// Before it is started: what it is for, which all ranks must agree on.
  virtual void set_purpose(uint16_t purpose) = 0;
  /// Does what can be done now; whether all is done. `moved` becomes true if there was something. Throws where ranks
  /// disagree.
  virtual bool advance(SlotAccess& slots, bool& moved) = 0;
  /// What a step could not be done without; after advance() has moved nothing.
  virtual Awaited awaited(const SlotAccess& slots) const = 0;
  /// Whether other ranks wait for a step of this one; else what is left is its own affair.
  virtual bool is_needed_by_others() const = 0;
};

/// What a caller does beside an operation that it waits for.
class WaitObserver {
 public:
  /// The other ranks can read this rank's part. Called once at most.
  virtual void announced() noexcept = 0;
  /// The others have not arrived at once; this rank's part need not be readable yet.
  virtual void late() noexcept = 0;

 protected:
  ~WaitObserver() = default;
};

using OperationPtr = std::shared_ptr<Operation>;
using JointPtr = std::shared_ptr<JointOperation>;

}  // namespace ddp::shm
