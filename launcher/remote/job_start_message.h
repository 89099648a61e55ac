// The message with which the hosts begin a job. It is made from the user's options, this machine's files and the hosts'
// reports.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/plan/job_nodes.h"
#include "launcher/plan/options.h"
#include "launcher/remote/job_plan.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {

SshSettings ssh_settings(const Options& options);

// Throws LaunchError for options that do not work with several hosts.
void check_for_hosts(const Options& options, const std::vector<JobNode>& nodes);

struct JobStartMessage {
  Plan plan{};
  RendezvousEndpoint endpoint{};
  std::string note{};  // for the user; "" when there is nothing to say
};

// `is_own` returns whether a numeric address belongs to this machine. Throws LaunchError when the nodes could not meet,
// or when the secret or the working folder cannot be read.
JobStartMessage make_job_start_message(const Options& options, const std::vector<JobNode>& nodes,
                                       const std::map<std::uint32_t, Hello>& hellos,
                                       const std::function<bool(const std::string&)>& is_own);

}  // namespace launcher::remote
