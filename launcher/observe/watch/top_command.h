// `ddprun top` on a terminal: handles its keys, and draws the screen once a second.
#pragma once

#include <string>

#include "launcher/observe/watch/job_search.h"

namespace launcher {

// Returns when all jobs have ended or the user quits. The state of the terminal is then restored.
void run_top(const std::string& job, JobScope scope);

}  // namespace launcher
