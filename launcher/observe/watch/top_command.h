// `ddprun top` on a terminal: its keys, and what it shows once a second.
#pragma once

#include <string>

#include "launcher/observe/watch/job_search.h"

namespace launcher {

// Until all jobs have ended or the user quits. The terminal is as before then.
void run_top(const std::string& job, JobScope whose);

}  // namespace launcher
