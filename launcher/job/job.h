// One job on this node, from the store to the report: what the supervising process does.
#pragma once

#include "launcher/local/processes/guardian.h"
#include "launcher/local/report/event_log.h"
#include "launcher/plan/job_request.h"

namespace launcher {

// Returns ddprun's exit status. Throws LaunchError when the job cannot be started.
int supervise_job(const JobRequest& request, EventLog& events, Guarded guarded);

}  // namespace launcher
