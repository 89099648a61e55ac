// `ddprun stack`: prints where the threads of a running job's ranks are.
#pragma once

#include <span>
#include <string>

namespace launcher {

// True if the first argument is "stack".
bool is_stack_command(std::span<const std::string> arguments);

struct StackReply {
  std::string text{};
  std::string problem{};  // why the stack is missing
};
// Asks the ddprun at `socket` for stacks. `ranks`: such as " 1 3"; empty: all ranks on this machine. Takes up to 2 s.
StackReply ask_for_stacks(const std::string& socket, const std::string& ranks);

// Returns the exit status: 0, or 1 when there is no such job or rank, or the job does not answer. Throws LaunchError
// when the arguments are invalid.
int run_stack_command(std::span<const std::string> arguments);

}  // namespace launcher
