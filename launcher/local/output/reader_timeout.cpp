#include "launcher/local/output/reader_timeout.h"

#include <algorithm>

namespace launcher {
namespace {

// What the reader has at least.
constexpr auto kReaderTime = std::chrono::seconds(1);

}  // namespace

// Who reads the output may be slow, as in any pipeline. But a job that is being stopped ends within the grace time,
// read or not, and one that has failed does not wait longer than that for a reader that takes nothing.
std::optional<ReaderTimeout::Time> ReaderTimeout::deadline(Time last_progress) const {
  const Time least = begin + kReaderTime;
  if (timed_out_at) return std::max(least, *timed_out_at + grace);
  if (kill_time) return std::max(least, *kill_time);
  if (gave_up_before) return least;
  if (ended_well) return std::nullopt;
  return std::max({least, begin + grace, last_progress + grace});
}

}  // namespace launcher
