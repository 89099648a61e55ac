// How long ddprun waits at the end for the process that reads its output. Pure.
#pragma once

#include <chrono>
#include <optional>

namespace launcher {

struct ReaderTimeout {
  using Time = std::chrono::steady_clock::time_point;

  Time begin{};  // when the ranks had ended
  std::chrono::milliseconds grace{0};
  std::optional<Time> timed_out_at = std::nullopt;  // --timeout expired
  std::optional<Time> kill_time = std::nullopt;     // the job is being stopped, and what does not stop is killed then
  bool ended_well = false;
  bool gave_up_before = false;

  // When what nobody has read is dropped; nothing when that is never. `last_progress`: when a reader last took
  // something.
  std::optional<Time> deadline(Time last_progress) const;
};

}  // namespace launcher
