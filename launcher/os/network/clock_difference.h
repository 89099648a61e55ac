// What is known of another host's clock.
#pragma once

#include <cstdint>

namespace launcher {

// Microseconds by which it is ahead of ours, and by how much that may be wrong at most, in either direction.
struct ClockDifference {
  std::int64_t ahead = 0;
  std::int64_t error = 0;
  bool operator==(const ClockDifference&) const = default;
};

}  // namespace launcher
