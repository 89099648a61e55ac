// Where ranks have called different things. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/watch/group_calls.h"
#include "launcher/watch/rank_view.h"

namespace launcher {

// A call, and the ranks that have made it.
using Camp = std::pair<std::string, std::vector<int>>;
// Ranks by what they have called at one number, those with fewest ranks first.
std::vector<Camp> camps_at(const Mismatch& mismatch);
std::string mismatch_text(const Mismatch& mismatch);

// Where the ranks' last collectives differ, for a report on a job that has failed: "" when they do not.
std::string divergence(const std::vector<RankView>& ranks);

}  // namespace launcher
