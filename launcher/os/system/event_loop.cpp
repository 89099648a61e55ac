#include "launcher/os/system/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "launcher/os/system/launch_error.h"

namespace launcher {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw LaunchError(std::string("cannot create an epoll descriptor: ") + std::strerror(errno));
}

// A descriptor may be closed and its number reused while an old event is still in the same batch. The generation
// distinguishes the two.
void EventLoop::add(int fd, std::uint32_t events, Handler handler) {
  auto watch = std::make_shared<Watch>();
  watch->generation = ++next_generation_;
  watch->handler = std::move(handler);
  epoll_event event{};
  event.events = events;
  event.data.u64 = (static_cast<std::uint64_t>(watch->generation) << 32) | static_cast<std::uint32_t>(fd);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw LaunchError("cannot watch descriptor " + std::to_string(fd) + ": " + std::strerror(errno));
  }
  watches_[fd] = std::move(watch);
}

void EventLoop::change(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = (static_cast<std::uint64_t>(watches_.at(fd)->generation) << 32) | static_cast<std::uint32_t>(fd);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) {
  if (watches_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::call_at(Clock::time_point when, std::function<void()> action) {
  const TimerId id{when, next_timer_++};
  timers_.emplace(id, std::move(action));
  return id;
}

void EventLoop::cancel(TimerId timer) {
  timers_.erase(timer);
}

void EventLoop::Timer::start_at(Clock::time_point when, std::function<void()> action) {
  cancel();
  id_ = loop_.call_at(when, [this, action = std::move(action)] {
    id_.reset();
    action();
  });
}

int EventLoop::timeout_ms() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - Clock::now();
  if (left <= Clock::duration::zero()) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

void EventLoop::run_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto action = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    action();
  }
}

void EventLoop::run_once() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms());
  if (count < 0 && errno != EINTR) throw LaunchError(std::string("epoll_wait failed: ") + std::strerror(errno));
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    const auto found = watches_.find(static_cast<int>(data & 0xffffffffU));
    if (found == watches_.end() || found->second->generation != data >> 32) continue;
    const std::shared_ptr<Watch> watch = found->second;  // keeps the handler alive when it removes itself
    watch->handler(events[static_cast<std::size_t>(i)].events);
  }
  run_timers();
}

}  // namespace launcher
