// The last collectives of each rank, in the form of PyTorch's flight recorder, which its analyser
// (torch.distributed.flight_recorder.fr_trace) reads.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

// Returns the record of one rank. `ranks` are all ranks that are seen. `clock_offset` is added to the pages'
// microseconds to get microseconds since 1970. Pure.
nlohmann::ordered_json flight_record(const RankView& rank, const std::vector<RankView>& ranks,
                                     std::int64_t clock_offset);

// Writes each rank's record to <folder>/flight_record/rank_<rank>, for the analyser, and as JSON to json_file(rank).
// Returns false when a file cannot be written.
bool write_flight_records(const std::vector<RankView>& ranks, const std::string& folder,
                          const std::function<std::string(const RankView& rank)>& json_file);

}  // namespace launcher
