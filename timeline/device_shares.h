// What the devices of each rank do, where the timeline has ranges on devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// Nanoseconds within the rank's steps, over all its devices and streams: where several do the same at once it counts
// once.
struct DeviceShare {
  std::int64_t total = 0;                       // of the steps; without any, from the first range to the last one
  std::int64_t busy = 0;                        // in any range but that of waiting for gradients
  std::map<std::string, std::int64_t> times{};  // by the range's name; all buckets are "communication"
  std::int64_t others = 0;                      // in ranges of further names
  std::int64_t hidden = 0;                      // of communication, while backward computes
};

struct DeviceShares {
  std::vector<std::string> names{};    // that take most time, of all ranks together, in that order
  std::map<int, DeviceShare> ranks{};  // none for ranks without ranges on devices
};

// At most so many names.
DeviceShares device_shares(const Trace& trace, const std::map<int, RankLine>& lines, std::size_t names);

}  // namespace ddp::timelines
