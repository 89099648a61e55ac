// One job on this node, from the store to the report: what the supervising process does.
#pragma once

#include <string>

#include "launcher/plan/options.h"
#include "launcher/plan/program.h"
#include "launcher/plan/resources.h"
#include "launcher/processes/guardian.h"
#include "launcher/report/event_log.h"

namespace launcher {

struct JobRequest {
  Options options;
  Program program;
  Resources resources;
  std::string debugger;      // of --debug; empty: none
  std::string error_folder;  // for the workers' error files; empty: they are among the log files
};

// Returns ddprun's exit status. Throws LaunchError when the job cannot be started.
int supervise_job(const JobRequest& request, EventLog& events, Guarded guarded);

}  // namespace launcher
