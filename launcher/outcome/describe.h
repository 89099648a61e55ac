// Ranks and their ends in words. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/outcome/job_end.h"

namespace launcher {

// "rank 3", "ranks 0, 1, 3", the rest of many as a number.
std::string rank_list(std::vector<int> ranks);

// "exited with status 7", "was killed by SIGSEGV (core dumped)".
std::string describe_end(const RankEnd& rank);

}  // namespace launcher
