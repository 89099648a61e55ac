// The ranks of an attempt for who watches their progress.
#pragma once

#include <vector>

#include "launcher/local/processes/worker_group.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// All of them; `end` tells how those that have ended did so.
std::vector<WatchedRank> watched_ranks(const WorkerGroup& workers, const JobEnd& end);

}  // namespace launcher
