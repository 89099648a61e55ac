// How long the other end of a link has said nothing, not counting the time in which we did not listen: a launcher that
// was itself delayed must not take the others for dead. Pure.
#pragma once

#include <algorithm>
#include <chrono>

namespace launcher::control {

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
