// How long ddprun waits at the end for the process that reads its output. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace launcher {

inline constexpr auto kReaderTimeout = std::chrono::seconds(1);

struct ReaderTimeout {
  using Time = std::chrono::steady_clock::time_point;

  Time begin{};  // when the ranks had ended
  std::chrono::milliseconds grace{0};
  std::optional<Time> timed_out_at = std::nullopt;  // --timeout expired
  std::optional<Time> kill_time =
      std::nullopt;  // when the remaining processes of a job that is being stopped are killed
  bool ended_well = false;
  bool gave_up_before = false;

  // When to drop output that was not read; nothing if it is never dropped. `last_progress` is when a reader last read
  // something. The reader may be slow, as in any pipeline. But a job that is being stopped ends within the grace time
  // even if its output was not read. A job that has failed waits for the grace time at most while its reader reads
  // nothing.
  std::optional<Time> deadline(Time last_progress) const {
    const Time least = begin + kReaderTimeout;
    if (timed_out_at) return std::max(least, *timed_out_at + grace);
    if (kill_time) return std::max(least, *kill_time);
    if (gave_up_before) return least;
    if (ended_well) return std::nullopt;
    return std::max({least, begin + grace, last_progress + grace});
  }
};

}  // namespace launcher
