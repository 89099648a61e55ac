// What a node that stops its ranks reports to the other nodes. Pure.
#pragma once

#include <string>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// Because a rank failed: the first one of `job`, by its index in `ranks`.
FailureNotice notice_of_failure(const JobEnd& job, std::size_t first);
// Because a signal told ddprun to stop.
FailureNotice notice_of_stop(const std::string& host, int signal);
// Because one of ddprun's own processes was killed.
FailureNotice notice_of_loss(const std::string& host);
// Because the job has taken too long, for `reason`; with `restarts` it may be started again.
FailureNotice notice_of_lateness(const std::string& host, const std::string& reason, bool restarts);

}  // namespace launcher
