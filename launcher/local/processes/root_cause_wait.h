// How long the other ranks are left alone when a rank ends with words that say that its peer went away: the peer is the
// cause then, and may still be tearing down, but to stop it would hide how it ends. Pure.
#pragma once

#include <chrono>
#include <optional>

namespace launcher {

class RootCauseWait {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A rank has ended so. `is_vague`: the words fit a failure of its own as well.
  void add_victim(Time now, bool is_vague);
  bool has_begun() const { return first_.has_value(); }
  // Whether to wait on. `is_somebody_ending`: a rank that still runs shows that it is about to fail.
  bool continues(Time now, bool is_somebody_ending) const;

 private:
  std::optional<Time> first_;
  Time last_{};
  bool is_vague_ = true;  // all of them
};

}  // namespace launcher
