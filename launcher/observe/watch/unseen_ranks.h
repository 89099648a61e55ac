// Which rank delays a job whose ranks report nothing: from where their Python programs are, or else from what the
// kernel tells of their processes. Pure.
#pragma once

#include <vector>

#include "launcher/observe/watch/verdict.h"

namespace launcher {

// For ranks none of which waits in a collective that is seen; at least one that runs reports nothing.
Verdict judge_unseen(const std::vector<RankView>& ranks);

}  // namespace launcher
