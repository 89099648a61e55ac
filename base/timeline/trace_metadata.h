// What a timeline's file says of itself at its beginning: when it was begun, on which clock, and where.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::detail {

// The same moment on two clocks, in nanoseconds.
struct ClockPair {
  std::uint64_t steady = 0;  // timeline_clock(), of this host since it was started
  std::int64_t wall = 0;     // since 1970
};
ClockPair read_clocks() noexcept;

// A JSON object; `rank` is -1 for a file of all ranks, whose number is not told. Files of one start of one host have
// the same clock.
std::string metadata_json(const ClockPair& base, int rank, int world_size);

}  // namespace ddp::detail
