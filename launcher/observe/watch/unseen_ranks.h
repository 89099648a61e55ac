// Finds the rank that delays a job whose ranks have no progress pages: from the positions of their Python programs, or
// else from what the kernel reports about their processes. Pure.
#pragma once

#include <vector>

#include "launcher/observe/watch/verdict.h"

namespace launcher {

// For ranks of which none is known to wait in a collective, and of which at least one running rank has no page.
Verdict diagnose_unseen_ranks(const std::vector<RankView>& ranks);

}  // namespace launcher
