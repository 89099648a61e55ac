// Takes options from the scheduler that started ddprun if they were given neither on the command line nor by PET_
// variables.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/plan/options.h"
#include "launcher/plan/schedulers/process_context.h"

namespace launcher {

// The options that were given, by name ("nnodes"), and where: "the command line", "PET_NNODES".
using GivenOptions = std::map<std::string, std::string>;

// The options that determine a node's place; GivenOptions needs no others.
const std::vector<std::string>& place_options();

// Sets nnodes, node_rank, master_addr, master_port, rdzv_id, nproc_per_node and grace if they were not given and the
// scheduler provides them, and Options::origins. Throws LaunchError if the scheduler's variables contradict each other,
// or show that ddprun was not started once on each node.
void apply_scheduler(const ProcessContext& context, const GivenOptions& given, Options& options);

}  // namespace launcher
