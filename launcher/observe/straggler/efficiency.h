// Where a job's time went. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "launcher/observe/straggler/slice.h"

namespace launcher {

class Efficiency {
 public:
  void add(const Slice& slice);
  // "efficiency 83 %: ..."; "" for a job too short to say anything, or of one rank.
  std::string text() const;

 private:
  std::vector<Slice> slices_;    // at most one: the sum
  double lost_ = 0;              // microseconds of each rank, to the slowest of the moment
  std::map<int, double> blame_;  // the same, by rank
};

}  // namespace launcher
