// A timeline by ranks: what the thread that trains was doing at each moment, and what was under way beside it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "timeline/trace.h"

namespace ddp::timelines {

// A time in which a rank does one thing.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Activity activity = Activity::kOther;
  std::uint32_t name = 0;  // of the innermost slice; kNoName without one
};
inline constexpr std::uint32_t kNoName = 0xffff'ffff;

struct RankLine {
  std::vector<Slice> steps{};
  std::vector<Segment> segments{};  // in order, without gaps from the first to the last slice
  std::vector<Slice> buckets{};     // in order of their begins, as what follows
  std::vector<Slice> collectives{};
};

// The thread that trains is the one that spends most time in forward, backward, data and the like; without those, in
// ranges of the program's own.
std::map<int, RankLine> rank_lines(const Trace& trace);

// The segments between two moments, cut off there.
std::vector<Segment> within(const std::vector<Segment>& segments, std::int64_t begin, std::int64_t end);

}  // namespace ddp::timelines
