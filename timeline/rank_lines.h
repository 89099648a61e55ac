// A timeline arranged by ranks: what the training thread was doing at each time, and which operations ran concurrently.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "timeline/trace.h"

namespace ddp::timelines {

// A period of time in which a rank has one activity.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Activity activity = Activity::kOther;
  std::uint32_t name = 0;  // the name of the innermost slice; kNoName without a slice
};
inline constexpr std::uint32_t kNoName = 0xffff'ffff;

struct RankLine {
  std::vector<Slice> steps{};
  std::vector<Segment> segments{};  // in order, without gaps from the first to the last slice
  std::vector<Slice> buckets{};     // ordered by start, like the following members
  std::vector<Slice> collectives{};
};

// The training thread is the thread that spends the most time in forward, backward, data and similar phases. If there
// are no phases, it is the thread that spends the most time in user ranges.
std::map<int, RankLine> rank_lines(const Trace& trace);

// Returns the segments between two points in time, clipped to these.
std::vector<Segment> within(const std::vector<Segment>& segments, std::int64_t begin, std::int64_t end);

}  // namespace ddp::timelines
