// A pipe whose ends are closed on exec.
#pragma once

#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

// `flags` of pipe2 on top of O_CLOEXEC. Throws LaunchError when no descriptors are left.
Pipe make_pipe(int flags = 0);

}  // namespace launcher
