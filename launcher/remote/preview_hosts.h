// What a job on several hosts would start, as text (--dry_run, --show_env). Nobody is asked, nothing is started.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_nodes.h"
#include "launcher/plan/options.h"

namespace launcher::remote {

// Of each host the command that reaches it and its ddprun's options, then its ranks with their variables. What the host
// itself decides is in angle brackets. `own`: this process's variables.
std::string preview_hosts(const Options& options, const std::vector<JobNode>& nodes,
                          const std::vector<std::string>& own);

}  // namespace launcher::remote
