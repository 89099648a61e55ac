// `ddprun stack`: where the threads of a running job's ranks are.
#pragma once

#include <span>
#include <string>

namespace launcher {

// "stack" is the first of the words.
bool is_stack_command(std::span<const std::string> arguments);

struct StackReply {
  std::string text{};
  std::string problem{};  // why the stack is missing
};
// Of the job whose ddprun answers at `socket`. `ranks`: " 1 3"; empty: all on this machine. Takes up to 2 s.
StackReply ask_for_stacks(const std::string& socket, const std::string& ranks);

// Returns the exit status: 0, or 1 when there is no such job or rank, or it does not answer. Throws LaunchError when
// the words cannot be understood.
int run_stack_command(std::span<const std::string> arguments);

}  // namespace launcher
