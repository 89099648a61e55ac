// What the launchers of several nodes see of their ranks, as they send it to each other. Times travel as ages, since
// each node has a clock of its own; nothing that is read is believed beyond its bounds. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>

#include "launcher/observe/straggler/step_interval.h"
#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

// `now`: microseconds of this node's clock of the pages. Of the collectives the last `most_calls`, and all that are
// open.
nlohmann::json json_of(const RankView& view, std::uint64_t now, std::size_t most_calls);
// Nothing when it is no such rank.
std::optional<RankView> view_from(const nlohmann::json& json, std::uint64_t now);

// What a rank did up to the end of a step; times between two samples of one rank are what counts.
nlohmann::json json_of(const RankSample& sample);
std::optional<RankSample> sample_from(const nlohmann::json& json);

}  // namespace launcher
