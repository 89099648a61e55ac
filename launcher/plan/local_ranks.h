// How many ranks this node starts.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/options.h"

namespace launcher {

struct LocalRanks {
  int count = 1;
  std::string hint{};  // a line for the user; empty when there is nothing to report
};

// Determines the number from --nproc_per_node and this machine's CPUs and GPUs. Throws LaunchError when there are no
// GPUs to count.
LocalRanks local_ranks(const Options& options);
// A warning for each option that names a local rank which this node does not have. The number of ranks must be known.
std::vector<std::string> absent_ranks(const Options& options);

}  // namespace launcher
