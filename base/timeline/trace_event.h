// One event of a timeline's file, which is Chrome's trace format: JSON, as Perfetto and chrome://tracing read it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/timeline/records.h"

namespace ddp::detail {

// Lanes that are no threads have these numbers, beyond those of any thread.
inline constexpr std::uint64_t kStepsLane = 1'000'000'000;

struct TraceEvent {
  enum class Form : std::uint8_t {
    kSlice,
    kInstant,
    kCounter,
    kLaneName,  // `name` is the lane's, `number` its place among the rank's lanes
  };
  Form form = Form::kSlice;
  EventKind kind = EventKind::kUser;
  std::uint64_t lane = 0;
  std::uint64_t begin = 0;  // nanoseconds of timeline_clock()
  std::uint64_t end = 0;
  std::string name{};
  std::optional<std::uint64_t> number = std::nullopt;  // a collective's, a bucket's, a step's
  std::optional<std::uint64_t> bytes = std::nullopt;
  std::optional<std::uint64_t> started = std::nullopt;  // when a bucket's transfer began
  double value = 0;                                     // of a counter
  bool is_step = false;
  bool is_unfinished = false;  // its end was not seen
};

// The event as one line of the file, without the comma after it. `base`: nanoseconds that are 0 in the file.
std::string trace_json(const TraceEvent& event, int rank, std::int64_t base);
// The line that names a rank.
std::string rank_json(int rank, std::string_view name);

// `text` in quotes, as valid UTF-8 whatever it is.
std::string json_text(std::string_view text);

}  // namespace ddp::detail
