// What is known of another host's clock.
#pragma once

#include <cstdint>

namespace launcher {

// In microseconds: how far the other clock is ahead, and the largest error of this number in either direction.
struct ClockDifference {
  std::int64_t ahead = 0;
  std::int64_t error = 0;
  bool operator==(const ClockDifference&) const = default;
};

}  // namespace launcher
