// Sets of points in time, stored as sorted intervals that neither touch nor overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ddp::timelines {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
using Intervals = std::vector<Interval>;

// Makes such a set from intervals in any order.
inline Intervals merged(Intervals intervals) {
  std::erase_if(intervals, [](const Interval& each) { return each.end <= each.begin; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& one, const Interval& other) { return one.begin < other.begin; });
  Intervals set;
  for (const Interval& each : intervals) {
    if (set.empty() || each.begin > set.back().end) {
      set.push_back(each);
    } else {
      set.back().end = std::max(set.back().end, each.end);
    }
  }
  return set;
}
inline std::int64_t total(const Intervals& set) {
  std::int64_t sum = 0;
  for (const Interval& each : set) sum += each.end - each.begin;
  return sum;
}
inline Intervals common(const Intervals& one, const Intervals& other) {
  Intervals set;
  for (auto a = one.begin(), b = other.begin(); a != one.end() && b != other.end();) {
    const Interval both{.begin = std::max(a->begin, b->begin), .end = std::min(a->end, b->end)};
    if (both.begin < both.end) set.push_back(both);
    (a->end < b->end ? a : b)++;
  }
  return set;
}

}  // namespace ddp::timelines
