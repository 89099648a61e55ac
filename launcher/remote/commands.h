// Parts of a job on several hosts besides the session itself (session.h).
#pragma once

#include <string>
#include <vector>

#include "launcher/options/answers/answers.h"
#include "launcher/plan/job_nodes.h"
#include "launcher/plan/options.h"

namespace launcher::remote {

// The ddprun that another one starts on a host. It reports the properties of the host, connects to further hosts, and
// runs this host's part of the job. When its channel, standard input and output, ends, it ends everything that it
// started. Returns the exit status. Throws LaunchError when it cannot begin.
int run_agent();

// --check on one of several hosts: examines the machine's GPUs and limits, the program if one is given, and whether
// node 0 can be reached. Starts nothing; takes some seconds if node 0 does not answer.
std::vector<Finding> check_node(const Options& options);

// --dry_run and --show_env: for each host the command that reaches it and the options of its ddprun, then its ranks
// with their variables. Values that the host itself decides are in angle brackets. `own`: this process's variables.
// Starts nothing.
std::string preview_hosts(const Options& options, const std::vector<JobNode>& nodes,
                          const std::vector<std::string>& own);

}  // namespace launcher::remote
