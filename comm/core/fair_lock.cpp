#include "comm/core/fair_lock.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace ddp::detail {

FairLock::FairLock() : waiters_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (waiters_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

FairLock::~FairLock() {
  ::close(waiters_fd_);
}

bool FairLock::try_lock_until(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  if (!is_locked_ && waiting_.empty()) {
    is_locked_ = true;
    return true;
  }
  const uint64_t ticket = next_ticket_++;
  waiting_.push_back(ticket);
  if (waiting_.size() == 1) set_waiters_fd(true);
  const bool is_first = changed_.wait_until(lock, deadline, [&] { return !is_locked_ && waiting_.front() == ticket; });
  waiting_.erase(std::ranges::find(waiting_, ticket));
  if (waiting_.empty()) set_waiters_fd(false);
  if (is_first) is_locked_ = true;
  // The wait timed out, so another thread is now the first in the queue.
  if (!is_first) changed_.notify_all();
  return is_first;
}

void FairLock::unlock() noexcept {
  const std::lock_guard lock(mutex_);
  is_locked_ = false;
  changed_.notify_all();
}

// The caller must hold the lock. Neither call can fail: the counter is 0 or 1.
void FairLock::set_waiters_fd(bool has_waiters) const noexcept {
  uint64_t count = 1;
  static_cast<void>(has_waiters ? !::write(waiters_fd_, &count, sizeof count)
                                : !::read(waiters_fd_, &count, sizeof count));
}

}  // namespace ddp::detail
