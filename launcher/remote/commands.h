// What ddprun does for a job on several hosts besides running it (session.h).
#pragma once

#include <string>
#include <vector>

#include "launcher/options/answers/answers.h"
#include "launcher/plan/job_nodes.h"
#include "launcher/plan/options.h"

namespace launcher::remote {

// The ddprun that another one starts on a host: it reports what the host is, reaches further hosts, and runs this
// host's part of the job. When its channel, which is standard input and output, ends, everything that it started does.
// Returns the exit status. Throws LaunchError when it cannot begin.
int run_agent();

// --check on one of several hosts: the machine's GPUs and limits, the program where one is given, and whether node 0
// can be reached. Starts nothing; takes some seconds where node 0 does not answer.
std::vector<Finding> check_node(const Options& options);

// --dry_run, --show_env: of each host the command that reaches it and its ddprun's options, then its ranks with their
// variables. What the host itself decides is in angle brackets. `own`: this process's variables. Starts nothing.
std::string preview_hosts(const Options& options, const std::vector<JobNode>& nodes,
                          const std::vector<std::string>& own);

}  // namespace launcher::remote
