// One event of a timeline file. The format is Chrome's trace format: JSON that Perfetto and chrome://tracing can open.
// Pure.
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

// The numbers of lanes that are not threads. They are larger than any thread ID.
inline constexpr std::uint64_t kStepsLane = 1'000'000'000;

struct TraceEvent {
  enum class Form : std::uint8_t {
    kSlice,
    kInstant,
    kCounter,
    kLaneName,  // `name` is the name of the lane, `number` its position among the lanes of the rank
  };
  Form form = Form::kSlice;
  EventKind kind = EventKind::kUser;
  std::uint64_t lane = 0;
  std::uint64_t begin = 0;  // nanoseconds of timeline_clock()
  std::uint64_t end = 0;
  std::string name{};
  std::optional<std::uint64_t> number = std::nullopt;  // of a collective, bucket or step
  std::optional<std::uint64_t> bytes = std::nullopt;
  std::optional<std::uint64_t> started = std::nullopt;  // when the transfer of a bucket began
  double value = 0;                                     // of a counter
  bool is_step = false;
  bool is_unfinished = false;  // its end was not recorded
};

// Formats the event as one line of the file, without the trailing comma. `base`: the time in nanoseconds that is 0 in
// the file.
std::string trace_json(const TraceEvent& event, int rank, std::int64_t base);

std::string rank_json(int rank, std::string_view name);

// Quotes `text` as a JSON string; invalid UTF-8 is replaced.
std::string json_text(std::string_view text);

// The same moment on two clocks, in nanoseconds.
struct ClockPair {
  std::uint64_t steady = 0;  // timeline_clock(), since this host was booted
  std::int64_t wall = 0;     // since 1970
};

inline ClockPair read_clocks() noexcept {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return {.steady = timeline_clock(),
          .wall = static_cast<std::int64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<std::int64_t>(wall.tv_nsec)};
}

// Returns a JSON object. `rank` is -1 for a file of all ranks, which has no rank number. Two files use the same clock
// if the host and its boot are the same.
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
