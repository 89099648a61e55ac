// The time of day, for comparing the clocks of hosts.
#pragma once

#include <chrono>
#include <cstdint>

namespace launcher::remote {

// Nanoseconds since 1970.
inline std::uint64_t wall_clock_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace launcher::remote
