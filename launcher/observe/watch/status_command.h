// `ddprun status [JOB] [--json]` and `ddprun top [JOB]`: what this user's jobs on this machine are doing.
#pragma once

#include <span>
#include <string>

namespace launcher {

// These words, as the first one, are for ddprun itself; a program of that name is started as ./status.
bool is_status_command(std::span<const std::string> arguments);

// Returns the exit status: 0, or 1 when there is no such job, or one does not answer. Throws LaunchError when the words
// cannot be understood, or the answer not be written.
int run_status_command(std::span<const std::string> arguments);

}  // namespace launcher
