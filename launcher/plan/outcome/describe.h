// Ranks and their ends in words. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// "rank 3", "ranks 0, 1, 3", the rest of many as a number.
std::string rank_list(std::vector<int> ranks);

// "0.5 s"
std::string seconds_text(std::chrono::milliseconds time);

// "exited with status 7", "was killed by SIGSEGV (core dumped)".
std::string describe_end(const RankEnd& rank);

}  // namespace launcher
