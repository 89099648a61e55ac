// One job on this node, from the store to the report: what the supervising process does.
#pragma once

#include <string>

#include "launcher/event_log.h"
#include "launcher/guardian.h"
#include "launcher/options.h"
#include "launcher/program.h"
#include "launcher/resources.h"

namespace launcher {

struct JobRequest {
  Options options;
  Program program;
  Resources resources;
  std::string debugger;      // of --debug; empty: none
  std::string error_folder;  // for the workers' error files
};

// Returns ddprun's exit status. Throws LaunchError when the job cannot be started.
int supervise_job(const JobRequest& request, EventLog& events, Guarded guarded);

}  // namespace launcher
