// How long the other end of a link has said nothing, not counting the time in which we did not listen: a launcher that
// was itself held up must not take the others for dead. Pure.
#pragma once

#include <algorithm>
#include <chrono>

namespace launcher::control {

// How often the coordinator of `nodes` asks each whether it is there, when silence for `timeout` means its end: what is
// lost is noticed a tenth later at most. Large jobs are not to drown their coordinator, which takes about 10 us for a
// question and its answer (bench/rendezvous).
inline std::chrono::milliseconds ping_interval(std::chrono::milliseconds timeout, int nodes) {
  constexpr std::chrono::microseconds kPerNode{40};
  return std::max(timeout / 10, std::chrono::duration_cast<std::chrono::milliseconds>(nodes * kPerNode));
}

// The silence that means the end of a node, where its user wants `timeout`: that of several questions.
inline std::chrono::milliseconds silence_limit(std::chrono::milliseconds timeout, int nodes) {
  return std::max(timeout, 5 * ping_interval(timeout, nodes));
}

class Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  explicit Silence(Time now) : last_(now) {}

  // Something came from it, and says how long it may be silent from now on.
  void heard(Time now) { last_ = now; }
  void allow(Duration patience) { patience_ = patience; }
  // We ourselves did nothing for that long.
  void forgive(Duration time) { last_ += time; }
  bool is_over(Time now) const { return now - last_ > patience_; }
  Time last() const { return last_; }
  Duration patience() const { return patience_; }

 private:
  Time last_;
  Duration patience_ = std::chrono::seconds(30);  // a launcher that prepares its ranks may be busy with a slow disk
};

}  // namespace launcher::control
