// Sets of moments: intervals that neither touch nor overlap, in order.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::timelines {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
using Intervals = std::vector<Interval>;

// Of intervals in any order.
Intervals merged(Intervals intervals);
std::int64_t total(const Intervals& set);
Intervals common(const Intervals& one, const Intervals& other);

}  // namespace ddp::timelines
