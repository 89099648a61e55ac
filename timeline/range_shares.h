// The time of each rank's steps that is spent in named ranges: the ranges of its devices, or those of the program. The
// ranges of the program may lie within phases and in any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// Nanoseconds within the steps of a rank. Ranges with the same name that overlap in several lanes are counted once.
struct RangeShare {
  std::int64_t total = 0;  // the duration of the steps, or of the whole recording if there are no steps
  std::int64_t busy = 0;   // in any range, except waits for gradients
  std::map<std::string, std::int64_t> times{};  // by the name of the range; all buckets count as "communication"
  std::int64_t others = 0;                      // in ranges with other names
  std::int64_t hidden = 0;                      // communication that overlaps with the computation of backward
};

struct RangeShares {
  std::vector<std::string> names{};   // the names with the largest total time over all ranks, in descending order
  std::map<int, RangeShare> ranks{};  // contains only ranks that have such ranges
};

// `activity` is kDevice, or kUser for the ranges of the program. `names` is the maximum number of names.
RangeShares range_shares(const Trace& trace, const std::map<int, RankLine>& lines, Activity activity,
                         std::size_t names);

}  // namespace ddp::timelines
