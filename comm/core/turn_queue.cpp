#include "comm/core/turn_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace ddp::detail {

TurnQueue::TurnQueue() : wanted_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wanted_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

TurnQueue::~TurnQueue() {
  ::close(wanted_fd_);
}

bool TurnQueue::take(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  if (!is_taken_ && waiting_.empty()) {
    is_taken_ = true;
    return true;
  }
  const uint64_t ticket = next_ticket_++;
  waiting_.push_back(ticket);
  if (waiting_.size() == 1) show_wanted(true);
  const bool has_come = changed_.wait_until(lock, deadline, [&] { return !is_taken_ && waiting_.front() == ticket; });
  waiting_.erase(std::ranges::find(waiting_, ticket));
  if (waiting_.empty()) show_wanted(false);
  if (has_come) is_taken_ = true;
  // The wait timed out, so another thread is now the first in the queue.
  if (!has_come) changed_.notify_all();
  return has_come;
}

void TurnQueue::give_back() noexcept {
  const std::lock_guard lock(mutex_);
  is_taken_ = false;
  changed_.notify_all();
}

// The caller must hold the lock. Neither call can fail: the counter is 0 or 1.
void TurnQueue::show_wanted(bool is_wanted) const noexcept {
  uint64_t count = 1;
  static_cast<void>(is_wanted ? !::write(wanted_fd_, &count, sizeof count) : !::read(wanted_fd_, &count, sizeof count));
}

}  // namespace ddp::detail
