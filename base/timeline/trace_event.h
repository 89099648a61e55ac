// One event of a timeline's file, which is Chrome's trace format: JSON, as Perfetto and chrome://tracing read it. Pure.
#pragma once

#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/timeline/layout.h"
#include "base/timeline/records.h"

namespace ddp::detail {

// Lanes that are not threads have these numbers, beyond those of any thread.
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

std::string rank_json(int rank, std::string_view name);

// `text` in quotes, as valid UTF-8 whatever it is.
std::string json_text(std::string_view text);

// The same moment on two clocks, in nanoseconds.
struct ClockPair {
  std::uint64_t steady = 0;  // timeline_clock(), of this host since it was started
  std::int64_t wall = 0;     // since 1970
};

inline ClockPair read_clocks() noexcept {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return {.steady = timeline_clock(),
          .wall = static_cast<std::int64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<std::int64_t>(wall.tv_nsec)};
}

// A JSON object; `rank` is -1 for a file of all ranks, which has no rank number. Files of one start of one host have
// the same clock.
inline std::string metadata_json(const ClockPair& base, int rank, int world_size) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return "{\"writer\":\"ddprun timeline 1\",\"host\":" + json_text(host.data()) + ",\"boot\":" + json_text(boot) +
         (rank < 0 ? "" : ",\"rank\":" + std::to_string(rank) + ",\"world_size\":" + std::to_string(world_size)) +
         ",\"steady_ns\":" + std::to_string(base.steady) + ",\"wall_ns\":" + std::to_string(base.wall) + "}";
}

}  // namespace ddp::detail
