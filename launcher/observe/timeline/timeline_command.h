// `ddprun timeline start
// stop [JOB] [-o FILE]`: starts or stops recording the timeline of a running job.
#pragma once

#include <span>
#include <string>

namespace launcher {

// True if the first argument is "timeline", which ddprun handles itself. A program of that name can be started as
// ./timeline.
bool is_timeline_command(std::span<const std::string> arguments);

// Returns the exit status: 0, or 1 when there is no such job or it refuses. Throws LaunchError when the arguments are
// invalid.
int run_timeline_command(std::span<const std::string> arguments);

}  // namespace launcher
