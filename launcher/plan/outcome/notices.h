// What a node that stops its ranks reports to the other nodes. Pure.
#pragma once

#include <string>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// A rank failed; `first` is its index in `ranks`.
FailureNotice notice_of_failure(const JobEnd& job, std::size_t first);
// A signal told ddprun to stop.
FailureNotice notice_of_stop(const std::string& host, int signal);
// One of ddprun's own processes was killed.
FailureNotice notice_of_loss(const std::string& host);
// The job has taken too long, for `reason`. With `restarts` it may be started again.
FailureNotice notice_of_timeout(const std::string& host, const std::string& reason, bool restarts);

}  // namespace launcher
