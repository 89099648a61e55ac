// Measures how long the other end of a link has sent nothing. The time in which this launcher did not read is not
// counted: a delayed launcher must not consider the others lost. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "launcher/os/network/clock_difference.h"

namespace launcher::control {

inline std::int64_t steady_microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// Estimates the offset of another host's clock. The moment of the answer between question and receipt is unknown. If
// the middle is assumed, the error is at most half of the round trip. So the fastest answer is used, until it is too
// old, since clocks drift apart.
class ClockOffset {
 public:
  // In microseconds: when this launcher asked and received the answer, by its own clock, and when the other end
  // answered, by the other clock.
  void add(std::int64_t asked, std::int64_t answered, std::int64_t received_at) {
    const std::int64_t round_trip = received_at - asked;
    if (round_trip < 0) return;
    if (count_++ % kAnswers == 0) {
      earlier_ = latest_;
      latest_.reset();
    }
    if (!latest_ || round_trip < latest_->round_trip) {
      latest_ =
          Answer{.round_trip = round_trip, .ahead = answered - (asked + round_trip / 2), .received_at = received_at};
    }
  }
  // Returns the difference at `now`, microseconds of this clock; nothing before the first answer.
  std::optional<ClockDifference> difference(std::int64_t now) const {
    if (!latest_) return std::nullopt;
    const Answer& best = earlier_ && earlier_->round_trip < latest_->round_trip ? *earlier_ : *latest_;
    // Two microseconds are added because the times were rounded.
    return ClockDifference{
        .ahead = best.ahead,
        .error = best.round_trip / 2 + 2 + std::max<std::int64_t>(now - best.received_at, 0) / kDrift};
  }

 private:
  static constexpr std::uint64_t kAnswers = 64;
  // The drift of two clocks whose crystals are wrong by 50 millionths in opposite directions.
  static constexpr std::int64_t kDrift = 10'000;
  struct Answer {
    std::int64_t round_trip = 0;
    std::int64_t ahead = 0;
    std::int64_t received_at = 0;
  };
  std::uint64_t count_ = 0;
  std::optional<Answer> earlier_ = std::nullopt;
  std::optional<Answer> latest_ = std::nullopt;
};

// How often the coordinator of `nodes` nodes sends a ping to each. A node that is silent for `timeout` is lost. The
// interval is short enough to replace a broken connection soon. In large jobs it is longer, to limit the load of the
// coordinator, which needs about 10 us for a ping and its answer (bench/rendezvous).
inline std::chrono::milliseconds ping_interval(std::chrono::milliseconds timeout, int nodes) {
  constexpr std::chrono::microseconds kIntervalPerNode{40};
  constexpr std::chrono::milliseconds kMaxInterval{250};
  return std::max(std::min(timeout / 10, kMaxInterval),
                  std::chrono::duration_cast<std::chrono::milliseconds>(nodes * kIntervalPerNode));
}

// The silence after which a node is lost when the user asks for `timeout`: at least that of several pings.
inline std::chrono::milliseconds heartbeat_timeout(std::chrono::milliseconds timeout, int nodes) {
  return std::max(timeout, 5 * ping_interval(timeout, nodes));
}

// The silence after which a node makes a new connection, because an interruption of the network may have stalled the
// present one. TCP repeats lost data after 0.2, 0.4, 0.8 s and so on, so after a longer interruption the connection
// stays silent longer.
inline std::chrono::milliseconds reconnect_after(std::chrono::milliseconds timeout, int nodes) {
  constexpr std::chrono::milliseconds kDefaultTimeout{1'000};
  return std::max(std::min(timeout / 4, kDefaultTimeout), 4 * ping_interval(timeout, nodes));
}

// A node waits longer for the coordinator than the coordinator waits for the node. So a node that was given up still
// learns the decision if the network recovers soon.
inline std::chrono::milliseconds node_side_timeout(std::chrono::milliseconds coordinators) {
  return coordinators + coordinators / 5;
}

class HeartbeatTimeout {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  explicit HeartbeatTimeout(Time now) : last_received_(now) {}

  // received() records that the other end has sent something; set_timeout() how long it may be silent from now on.
  void received(Time now) { last_received_ = now; }
  void set_timeout(Duration timeout) { timeout_ = timeout; }
  // This launcher did nothing for `time`, which does not count as silence.
  void extend(Duration time) { last_received_ += time; }
  bool is_expired(Time now) const { return now - last_received_ > timeout_; }
  Time last_received() const { return last_received_; }
  Duration timeout() const { return timeout_; }

 private:
  Time last_received_;
  Duration timeout_ = std::chrono::seconds(30);  // a launcher that prepares its ranks may be busy with a slow disk
};

}  // namespace launcher::control
