// `ddprun stack`: where the threads of a running job's ranks are.
#pragma once

#include <span>
#include <string>

namespace launcher {

// "stack" is the first of the words.
bool is_stack_command(std::span<const std::string> arguments);

// Returns the exit status: 0, or 1 when there is no such job or rank, or it does not answer. Throws LaunchError when
// the words cannot be understood.
int run_stack_command(std::span<const std::string> arguments);

}  // namespace launcher
