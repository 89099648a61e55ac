// Merges the timelines of several ranks or nodes into one file.
#pragma once

#include <string>
#include <vector>

namespace ddp::timelines {

struct MergeResult {
  std::size_t events = 0;  // excludes events that only name ranks and lanes
  // The files from hosts that were synchronized only by comparing the time of day.
  std::vector<std::string> by_time_of_day{};
};

// Writes `out` with times relative to the first file. Throws TraceError with the name of the file if a file is not a
// timeline of ddprun or is given twice, if two files contain the same rank of the same attempt, or if `out` cannot be
// written.
MergeResult merge_traces(const std::vector<std::string>& files, const std::string& out);

}  // namespace ddp::timelines
