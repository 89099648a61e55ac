// Joins the files of several ranks, or of several nodes, into one.
#pragma once

#include <string>
#include <vector>

namespace ddp::timelines {

struct MergeResult {
  std::size_t events = 0;  // without those that only name ranks and lanes
  // Files whose hosts' clocks were compared by the time of day only.
  std::vector<std::string> by_time_of_day{};
};

// Writes `out`, whose times are those of the first file. Throws TraceError, naming the file, when one is not a timeline
// of ours or is named twice, two have the same rank of the same attempt, or `out` cannot be written.
MergeResult merge_traces(const std::vector<std::string>& files, const std::string& out);

}  // namespace ddp::timelines
