// One epoll set with a callback per descriptor, and timers. Descriptors that become ready while the loop is not looking
// are delivered in the order in which they became ready; finding the rank that failed first rests on that.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void(std::uint32_t events)>;
  using TimerId = std::pair<Clock::time_point, std::uint64_t>;

  EventLoop();

  // The loop does not own `fd`; remove it before closing it. A handler may add and remove any descriptor, its own too.
  void add(int fd, std::uint32_t events, Handler handler);
  void change(int fd, std::uint32_t events);
  void remove(int fd);

  TimerId call_at(Clock::time_point when, std::function<void()> action);
  void cancel(TimerId timer);

  // Waits for the next event or timer and runs what is due.
  void run_once();

 private:
  struct Watch {
    std::uint32_t generation = 0;
    Handler handler;
  };
  int timeout_ms() const;
  void run_timers();

  UniqueFd epoll_;
  std::uint32_t next_generation_ = 0;
  std::uint64_t next_timer_ = 0;
  std::unordered_map<int, std::shared_ptr<Watch>> watches_;
  std::map<TimerId, std::function<void()>> timers_;
};

}  // namespace launcher
