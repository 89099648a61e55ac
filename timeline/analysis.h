// Where the time of a step is spent: what each rank does, how much of the communication overlaps with backward, and
// what a step waits for.
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
  std::map<std::uint32_t, std::int64_t> own{};  // the times of Activity::kUser, by index into Trace::names
  std::int64_t total = 0;
};

// One bucket of the model, averaged over all ranks and steps, in nanoseconds.
struct BucketSummary {
  std::int64_t index = 0;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  double queued = 0;    // from the time when the bucket is ready to the start of its transfer
  double transfer = 0;  // from the start of the transfer to the complete sum
  double exposed = 0;   // the part of the transfer that does not overlap with backward
};

// A part of the critical path, which determines the duration of a step.
struct PathPart {
  int rank = 0;
  Activity activity = Activity::kOther;  // kCollective: communication
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t name = kNoName;  // the name of the range, for Activity::kUser
};

struct StepSummary {
  std::int64_t number = 0;
  int restart = 0;         // of the job: steps are numbered from 0 again after each restart
  std::int64_t begin = 0;  // when the first rank begins the step
  std::int64_t end = 0;    // when the last rank ends the step
  std::vector<PathPart> path{};
  std::int64_t duration() const { return end - begin; }
};

struct Overlap {
  std::int64_t communication = 0;  // nanoseconds in which at least one bucket is being transferred
  std::int64_t hidden = 0;         // the part of `communication` that overlaps with the computation of backward
};

struct Analysis {
  std::vector<StepSummary> steps{};      // in order
  std::map<int, RankShare> ranks{};      // within the steps
  std::map<int, Overlap> overlaps{};     // by rank, within the steps
  std::vector<BucketSummary> buckets{};  // by index
  std::size_t representative = 0;        // index of the step with the median duration
};

// If there are no steps, the whole recording is treated as one step with the number -1.
Analysis analyse(const std::map<int, RankLine>& lines);

// Returns the critical path of a step, from its start to its end. It is traced backwards from the rank that ends last.
// If that rank waits for other ranks, the path continues on the rank that entered the collective last.
std::vector<PathPart> critical_path(const std::map<int, RankLine>& lines, std::int64_t begin, std::int64_t end,
                                    int last_rank);

}  // namespace ddp::timelines
