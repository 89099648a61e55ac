// The state of ranks as JSON, in which launchers send it to each other. Times are sent as ages, since each node has its
// own clock. Everything that is read is checked. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>

#include "launcher/observe/straggler/step_interval.h"
#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

// `now` is in microseconds of this node's page clock. The JSON contains the last `most_calls` collectives, and all that
// have not completed.
nlohmann::json json_of(const RankView& view, std::uint64_t now, std::size_t most_calls);
// Returns nothing when the JSON does not describe a rank.
std::optional<RankView> view_from(const nlohmann::json& json, std::uint64_t now);

// A sample has the sums of a rank up to the end of a step. The receiver uses the differences between two samples.
nlohmann::json json_of(const RankSample& sample);
std::optional<RankSample> sample_from(const nlohmann::json& json);

}  // namespace launcher
