// What ranges take of each rank's steps, by their names: those of its devices, or the program's own, which may lie
// within phases and in any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// Nanoseconds within the rank's steps, over all its lanes: where several do the same at once it counts once.
struct RangeShare {
  std::int64_t total = 0;                       // of the steps; without any, from the first range to the last one
  std::int64_t busy = 0;                        // in any range but that of waiting for gradients
  std::map<std::string, std::int64_t> times{};  // by the range's name; all buckets are "communication"
  std::int64_t others = 0;                      // in ranges of further names
  std::int64_t hidden = 0;                      // of communication, while backward computes
};

struct RangeShares {
  std::vector<std::string> names{};   // that take most time, of all ranks together, in that order
  std::map<int, RangeShare> ranks{};  // none for ranks without such ranges
};

// `activity`: kDevice, or kUser for the program's own. At most so many names.
RangeShares range_shares(const Trace& trace, const std::map<int, RankLine>& lines, Activity activity,
                         std::size_t names);

}  // namespace ddp::timelines
