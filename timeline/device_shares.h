// What the devices of each rank do, where the timeline has ranges on devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "timeline/trace.h"

namespace ddp::timelines {

// Nanoseconds, over all devices and streams of a rank: where several do the same at once it counts once.
struct DeviceShare {
  std::int64_t total = 0;                       // from the first range's begin to the last one's end
  std::int64_t busy = 0;                        // in any range but that of waiting for gradients
  std::map<std::string, std::int64_t> times{};  // by the range's name; all buckets are "communication"
  std::int64_t hidden = 0;                      // of communication, while backward computes
};

// By rank; none for ranks without such ranges.
std::map<int, DeviceShare> device_shares(const Trace& trace);

}  // namespace ddp::timelines
