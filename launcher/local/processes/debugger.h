// --debug: one rank under gdb, in the terminal of ddprun.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/options.h"
#include "launcher/plan/program.h"

namespace launcher {

// Looks for what --debug needs: gdb's file. Throws LaunchError when there is no gdb in PATH, standard input is no
// terminal, or the rank is not one of this job.
std::string find_debugger(const Options& options);

// The arguments that run `program` under the debugger. A script is run by its interpreter, which is what the debugger
// can look into. `first_line`: that of the program's file. Pure.
Program under_debugger(const Program& program, const std::string& debugger, std::string_view first_line);

}  // namespace launcher
