// Internal: started operations of a group that the driver has not taken yet, and messages to the driver. No
// LibTorch.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/spin_lock.h"
#include "comm/shm/mailbox.h"
#include "comm/shm/operation.h"

namespace ddp::shm {

/// Operations in the order in which they were started. Threads that start operations add them with the lock, which the
/// engine uses for its own state as well.
class OperationQueue {
 public:
  detail::SpinLock& mutex() { return mutex_; }

  // With the lock.

  void add(JointPtr operation) {
    joint_operations_.push_back(std::move(operation));
    has_new_.store(true);
  }
  void add(MessagePtr message) {
    messages_.push_back(std::move(message));
    has_new_.store(true);
  }
  /// Gives each operation to `take_joint` or `take_message`.
  template <typename TakeJoint, typename TakeMessage>
  void take_all(const TakeJoint& take_joint, const TakeMessage& take_message) {
    if (!has_new_.load(std::memory_order_relaxed)) return;
    has_new_.store(false);
    for (JointPtr& operation : joint_operations_) take_joint(std::move(operation));
    joint_operations_.clear();
    for (MessagePtr& message : messages_) take_message(std::move(message));
    messages_.clear();
  }
  /// Nothing can be started from now on; the first reason counts.
  void fail(std::exception_ptr reason) {
    if (!failure_) failure_ = std::move(reason);
  }
  /// Throws what fail() was given.
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// The driver returns as soon as it can; with abort() also from what it would finish before.
  void stop() { is_stopping_.store(true); }
  void abort() { is_aborting_.store(true); }

  // From any thread.

  bool has_new() const { return has_new_.load(); }
  bool is_stopping() const { return is_stopping_.load(std::memory_order_relaxed); }
  bool is_aborting() const { return is_aborting_.load(); }

 private:
  detail::SpinLock mutex_;
  std::vector<JointPtr> joint_operations_;
  std::vector<MessagePtr> messages_;
  std::atomic<bool> has_new_{false};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_aborting_{false};
  std::exception_ptr failure_;
};

}  // namespace ddp::shm
