// Internal: does the operations of one rank in one group, in one thread at a time: takes them from the queue, advances
// them, sleeps while other ranks have to do something, and ends those that no rank will serve. No LibTorch.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/shm/mailbox.h"
#include "comm/shm/operation.h"
#include "comm/shm/operation_queue.h"
#include "comm/shm/peers.h"
#include "comm/shm/processor_choice.h"
#include "comm/shm/spin_policy.h"

namespace ddp::shm {

class Driver {
 public:
  using Clock = Operation::Clock;
  /// When drive() returns, beside when an operation has ended.
  struct Limit {
    const Operation* until = nullptr;  ///< when this one has ended; null: when there is nothing left
    std::optional<Clock::time_point> time{};
    bool one_pass = false;      ///< when nothing moves
    bool is_finishing = false;  ///< not because the queue was stopped
  };

  /// All ranks have attached to `segment`; `numbers`: see Peers.
  Driver(const Segment& segment, int rank, std::vector<int> numbers, OperationQueue& queue);

  /// By the one thread that drives, without the queue's lock.
  void drive(const Limit& limit, SpinPolicy& policy);

  // With the queue's lock, when no thread drives.

  void take_new();
  void add(JointPtr operation) { joint_operations_.push_back(std::move(operation)); }
  /// Tries an operation that is not in the queue, where it is the only one. Whether it has ended.
  bool completes_immediately(JointOperation& operation, WaitObserver* observer);
  /// Of the joint operations the one that was started last, or null.
  JointPtr last() const { return joint_operations_.empty() ? nullptr : joint_operations_.back(); }
  /// Whether other ranks may wait for something other than what is left of one joint operation.
  bool is_needed_by_others() const {
    return joint_operations_.size() != 1 || joint_operations_.front()->is_needed_by_others();
  }
  /// The operations that have ended since the list was last cleared.
  std::vector<OperationPtr>& ended() { return ended_; }
  /// Ends all operations with `error` and announces to the other ranks that this rank has stopped. If it `has_failed`,
  /// the announcement has its first failure, or `error` if there was no earlier one.
  void leave(const std::exception_ptr& error, bool has_failed);

  // With the queue's lock.

  /// Throws if another rank has announced a failure. That rank has filled its slots before, so operations that need no
  /// more data from it would succeed on this rank only.
  void check_others() const {
    if (const auto failure = peers_.first_failure()) throw std::runtime_error(*failure);
  }
  /// Wakes the thread that drives, if it sleeps.
  void wake() const { wake_unconditionally(slots_.segment().block(slots_.rank())); }

 private:
  bool advance();
  bool has_reached(const Limit& limit) const;
  bool must_stop(const Limit& limit) const;
  bool is_idle() const { return joint_operations_.empty() && mailbox_.is_empty(); }
  std::vector<int> awaited_ranks() const;
  bool is_on_same_processor(int rank) const { return slots_.shares_processor_with(rank); }
  bool awaits_rank_on_same_processor() const;
  void leave_shared_processor(const std::vector<int>& awaited, int processor_before);
  bool sleep(const Limit& limit);
  struct StallReason {
    std::string text;
    std::optional<int> gone{};  ///< the rank that will do nothing any more; without one, it timed out
  };
  void check_for_stall_if_due();
  void check_for_stall(bool thoroughly);
  std::optional<StallReason> stall_reason_of(Operation& operation, const Awaited& awaited, bool thoroughly);
  void start_timeout(Operation& operation);
  void end(OperationPtr operation, std::exception_ptr error);
  void fail_all(std::exception_ptr error);
  void end_all(const std::exception_ptr& error);

  OperationQueue& queue_;
  SlotAccess slots_;
  Peers peers_;
  std::deque<JointPtr> joint_operations_;
  Mailbox mailbox_;
  MovePause move_pause_;
  uint32_t passes_ = 0;
  Clock::time_point last_full_check_{};  // thoroughly
  std::vector<OperationPtr> ended_;
  std::vector<Mailbox::Ended> ended_messages_;
  std::exception_ptr first_error_;
};

}  // namespace ddp::shm
