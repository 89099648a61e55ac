#include "base/timeline/trace_metadata.h"

#include <time.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "base/timeline/layout.h"
#include "base/timeline/trace_event.h"

namespace ddp::detail {

ClockPair read_clocks() noexcept {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return {.steady = timeline_clock(),
          .wall = static_cast<std::int64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<std::int64_t>(wall.tv_nsec)};
}

std::string metadata_json(const ClockPair& base, int rank, int world_size) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return "{\"writer\":\"ddprun timeline 1\",\"host\":" + json_text(host.data()) + ",\"boot\":" + json_text(boot) +
         (rank < 0 ? "" : ",\"rank\":" + std::to_string(rank) + ",\"world_size\":" + std::to_string(world_size)) +
         ",\"steady_ns\":" + std::to_string(base.steady) + ",\"wall_ns\":" + std::to_string(base.wall) + "}";
}

}  // namespace ddp::detail
