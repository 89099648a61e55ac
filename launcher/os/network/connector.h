// A TCP connection to a server that may not have started. Tries again until it succeeds, first within milliseconds,
// then at growing intervals. So a launcher that starts late is found quickly, and a long wait costs nearly nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/network/address.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

class Connector {
 public:
  // The longest pause within the first ten seconds, at most 200 ms.
  static constexpr std::chrono::milliseconds kEarlyPause{20};

  // Begins at once. Calls `on_connected` once with a non-blocking connection; after that it does nothing until retry().
  Connector(EventLoop& loop, std::string host, std::uint16_t port, std::function<void(UniqueFd)> on_connected,
            std::chrono::milliseconds early_pause = kEarlyPause);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // The pause before the next attempt, after `waited`. Pure.
  static EventLoop::Clock::duration pause_after(EventLoop::Clock::duration waited,
                                                EventLoop::Clock::duration early_pause = kEarlyPause);
  // Connects again after a pause, because the other end was not the right one, or has closed the connection.
  void retry(std::string problem);
  // The last attempt was refused: the host is up, but no process listens at the port.
  bool was_refused() const { return was_refused_; }
  // Why the last attempt failed, "" after one that succeeded.
  const std::string& problem() const { return problem_; }
  // The host is a name that could not be resolved so far.
  bool is_unresolved() const { return addresses_.empty() && !problem_.empty(); }

 private:
  using Clock = EventLoop::Clock;

  void begin();
  void look_up();
  void connect_next();
  void on_outcome();
  void on_failed(int error);
  void drop_attempt();
  void pause(Clock::duration time);
  Clock::duration pause_after_refusal() const;

  EventLoop& loop_;
  std::string host_;
  std::uint16_t port_;
  std::function<void(UniqueFd)> on_connected_;
  std::chrono::milliseconds early_pause_;
  std::unique_ptr<AddressLookup> lookup_;
  std::vector<SocketAddress> addresses_;
  bool is_numeric_ = false;
  Clock::time_point resolved_{};
  Clock::time_point begun_ = Clock::now();
  std::size_t next_address_ = 0;
  UniqueFd fd_;                    // exists during an attempt
  EventLoop::Timer timer_{loop_};  // limits the attempt, or the pause before the next one
  std::string problem_;
  bool was_refused_ = false;
};

}  // namespace launcher
