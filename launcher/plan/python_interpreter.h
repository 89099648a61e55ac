// Which Python runs .py programs.
#pragma once

#include <string>

namespace launcher {

// PYTHON_EXEC; else the python3 of the virtual environment that this ddprun is installed in, as torchrun takes its own;
// else "python3", to be looked up in PATH.
std::string python_interpreter();

}  // namespace launcher
