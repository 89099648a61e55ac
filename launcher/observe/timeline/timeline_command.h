// `ddprun timeline start|stop [JOB] [-o FILE]`: records a running job's timeline, or ends that.
#pragma once

#include <span>
#include <string>

namespace launcher {

// This word, as the first one and before one of its own, is for ddprun itself; a program of that name is started as
// ./timeline.
bool is_timeline_command(std::span<const std::string> arguments);

// Returns the exit status: 0, or 1 when there is no such job or it refuses. Throws LaunchError when the words cannot be
// understood.
int run_timeline_command(std::span<const std::string> arguments);

}  // namespace launcher
