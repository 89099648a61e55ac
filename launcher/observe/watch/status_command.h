// `ddprun status [JOB] [--json]` and `ddprun top [JOB]`: show what this user's jobs on this machine are doing.
#pragma once

#include <span>
#include <string>

namespace launcher {

// True if the first argument is one of these words, which ddprun handles itself. A program of that name can be started
// as ./status.
bool is_status_command(std::span<const std::string> arguments);

// Returns the exit status: 0, or 1 when there is no such job, or one does not answer. Throws LaunchError when the
// arguments are invalid, or when the output cannot be written.
int run_status_command(std::span<const std::string> arguments);

}  // namespace launcher
