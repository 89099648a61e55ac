// Where a step goes: what each rank does in it, how much of the communication backward hides, and what a step waits
// for.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

using Times = std::array<std::int64_t, kActivities>;  // nanoseconds of each activity

struct RankShare {
  Times times{};
  std::map<std::uint32_t, std::int64_t> own{};  // of Activity::kUser: by name, index into Trace::names
  std::int64_t total = 0;
};

// One bucket of the model, over all ranks and steps: means, in nanoseconds.
struct BucketSummary {
  std::int64_t index = 0;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  double queued = 0;    // from when it is ready until its transfer begins
  double transfer = 0;  // from then until its sum is there
  double exposed = 0;   // of that, while backward does not compute
};

// A stretch of the way that decides how long a step takes.
struct PathPart {
  int rank = 0;
  Activity activity = Activity::kOther;  // kCollective: communication
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t name = kNoName;  // of Activity::kUser
};

struct StepSummary {
  std::int64_t number = 0;
  int restart = 0;         // of the job: steps are numbered again after each
  std::int64_t begin = 0;  // of the first rank
  std::int64_t end = 0;    // of the last one
  std::vector<PathPart> path{};
  std::int64_t duration() const { return end - begin; }
};

struct Overlap {
  std::int64_t communication = 0;  // nanoseconds in which at least one bucket is under way
  std::int64_t hidden = 0;         // of these, while backward computes
};

struct Analysis {
  std::vector<StepSummary> steps{};      // in order
  std::map<int, RankShare> ranks{};      // within the steps
  std::map<int, Overlap> overlaps{};     // by rank, within the steps
  std::vector<BucketSummary> buckets{};  // by index
  std::size_t representative = 0;        // index of the step of median duration
};

// Where there are no steps, everything is taken for one, of number -1.
Analysis analyse(const std::map<int, RankLine>& lines);

// What decides the end of a step, from its begin on: from the rank that ends last backwards, and where a rank waits for
// others, on with the one that came last to what it waits for.
std::vector<PathPart> critical_path(const std::map<int, RankLine>& lines, std::int64_t begin, std::int64_t end,
                                    int last_rank);

}  // namespace ddp::timelines
