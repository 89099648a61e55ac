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

// What one rank leaves; `ranks` are all that are seen, `clock_offset` is what has to be added to the pages'
// microseconds for those since 1970. Pure.
nlohmann::ordered_json flight_record(const RankView& rank, const std::vector<RankView>& ranks,
                                     std::int64_t clock_offset);

// Writes each rank's as <folder>/flight_record/rank_<rank>, for the analyser, and as JSON into json_file(rank). False
// when a file cannot be written.
bool write_flight_records(const std::vector<RankView>& ranks, const std::string& folder,
                          const std::function<std::string(const RankView& rank)>& json_file);

}  // namespace launcher
