// How long the other end of a link has said nothing, not counting the time in which we did not listen: a launcher that
// was itself delayed must not take the others for dead. Pure.
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

// The offset of another host's clock. It is not known when between question and arrival the answer was given. If the
// middle is assumed, the error is at most half of the round trip. So the fastest answer counts, until it is too old:
// clocks drift apart.
class ClockOffset {
 public:
  // Microseconds: when we asked and heard the answer, by our clock, and when it was given, by theirs.
  void add(std::int64_t asked, std::int64_t answered, std::int64_t heard) {
    const std::int64_t round_trip = heard - asked;
    if (round_trip < 0) return;
    if (count_++ % kAnswers == 0) {
      earlier_ = latest_;
      latest_.reset();
    }
    if (!latest_ || round_trip < latest_->round_trip) {
      latest_ = Answer{.round_trip = round_trip, .ahead = answered - (asked + round_trip / 2), .heard = heard};
    }
  }
  // At `now`, microseconds of our clock; nothing before the first answer.
  std::optional<ClockDifference> difference(std::int64_t now) const {
    if (!latest_) return std::nullopt;
    const Answer& best = earlier_ && earlier_->round_trip < latest_->round_trip ? *earlier_ : *latest_;
    // Two more for the times, which were rounded.
    return ClockDifference{.ahead = best.ahead,
                           .error = best.round_trip / 2 + 2 + std::max<std::int64_t>(now - best.heard, 0) / kDrift};
  }

 private:
  static constexpr std::uint64_t kAnswers = 64;
  // Two clocks whose crystals are off by 50 millionths each, in opposite directions.
  static constexpr std::int64_t kDrift = 10'000;
  struct Answer {
    std::int64_t round_trip = 0;
    std::int64_t ahead = 0;
    std::int64_t heard = 0;
  };
  std::uint64_t count_ = 0;
  std::optional<Answer> earlier_ = std::nullopt;
  std::optional<Answer> latest_ = std::nullopt;
};

// How often the coordinator of `nodes` asks each whether it is there, when silence for `timeout` means that it is lost:
// often enough that a connection which the network has lost is replaced soon. Large jobs must not keep their
// coordinator busy, which takes about 10 us for a question and its answer (bench/rendezvous).
inline std::chrono::milliseconds ping_interval(std::chrono::milliseconds timeout, int nodes) {
  constexpr std::chrono::microseconds kPerNode{40};
  constexpr std::chrono::milliseconds kLongest{250};
  return std::max(std::min(timeout / 10, kLongest),
                  std::chrono::duration_cast<std::chrono::milliseconds>(nodes * kPerNode));
}

// The silence after which a node is lost, where its user wants `timeout`: that of several questions.
inline std::chrono::milliseconds heartbeat_timeout(std::chrono::milliseconds timeout, int nodes) {
  return std::max(timeout, 5 * ping_interval(timeout, nodes));
}

// The silence after which a node makes a new connection, as an interruption of the network may have spoilt the one that
// it has: TCP sends lost data again after 0.2, 0.4, 0.8 s and so on, so the longer an interruption was, the longer the
// connection stays silent after it.
inline std::chrono::milliseconds reconnect_after(std::chrono::milliseconds timeout, int nodes) {
  constexpr std::chrono::milliseconds kUsual{1'000};
  return std::max(std::min(timeout / 4, kUsual), 4 * ping_interval(timeout, nodes));
}

// A node waits so much longer for the coordinator than the coordinator waits for it. So a node that was given up still
// learns what was decided without it, when the network is there again soon.
inline std::chrono::milliseconds node_side_timeout(std::chrono::milliseconds coordinators) {
  return coordinators + coordinators / 5;
}

class HeartbeatTimeout {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  explicit HeartbeatTimeout(Time now) : last_received_(now) {}

  // Something came from it, and says how long it may be silent from now on.
  void received(Time now) { last_received_ = now; }
  void set_timeout(Duration timeout) { timeout_ = timeout; }
  // We ourselves did nothing for that long.
  void extend(Duration time) { last_received_ += time; }
  bool is_expired(Time now) const { return now - last_received_ > timeout_; }
  Time last_received() const { return last_received_; }
  Duration timeout() const { return timeout_; }

 private:
  Time last_received_;
  Duration timeout_ = std::chrono::seconds(30);  // a launcher that prepares its ranks may be busy with a slow disk
};

}  // namespace launcher::control
