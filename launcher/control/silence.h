// How long the other end of a link has said nothing, not counting the time in which we did not listen: a launcher that
// was itself held up must not take the others for dead. Pure.
#pragma once

#include <chrono>

namespace launcher::control {

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
