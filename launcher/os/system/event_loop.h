// One epoll set with a callback for each descriptor, and timers. Descriptors that become ready between two calls are
// handled in the order in which they became ready; the search for the rank that failed first relies on that.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void(std::uint32_t events)>;
  using TimerId = std::pair<Clock::time_point, std::uint64_t>;

  EventLoop();

  // The loop does not own `fd`; remove it before closing it. A handler may add and remove any descriptor, including its
  // own.
  void add(int fd, std::uint32_t events, Handler handler);
  void change(int fd, std::uint32_t events);
  void remove(int fd);

  TimerId call_at(Clock::time_point when, std::function<void()> action);
  void cancel(TimerId timer);

  // One timer, which is cancelled when this object is destroyed. A new start replaces the earlier action. When its
  // action is called, the timer no longer runs; the action may start it again or destroy the object.
  class Timer {
   public:
    explicit Timer(EventLoop& loop) : loop_(loop) {}
    ~Timer() { cancel(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    void start_at(Clock::time_point when, std::function<void()> action);
    void start_in(Clock::duration time, std::function<void()> action) {
      start_at(Clock::now() + time, std::move(action));
    }
    void cancel() {
      if (id_) loop_.cancel(*std::exchange(id_, std::nullopt));
    }
    bool is_running() const { return id_.has_value(); }

   private:
    EventLoop& loop_;
    std::optional<TimerId> id_;
  };

  // Waits for the next event or timer, and handles what is due.
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
