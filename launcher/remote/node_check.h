// --check on one of several hosts: what its ddprun finds out about its part of the job.
#pragma once

#include <vector>

#include "launcher/options/answers/machine_check.h"
#include "launcher/plan/options.h"

namespace launcher::remote {

// The machine's GPUs and limits, the program where one is given, and whether node 0 can be reached. Starts nothing;
// takes some seconds where node 0 does not answer.
std::vector<Finding> check_node(const Options& options);

}  // namespace launcher::remote
