// ddprun is two processes. The one the user started, the guardian, does little: it passes signals and terminal input on
// and reports the exit status. Its child, the supervisor, is the parent of all ranks. Whichever of them is killed, even
// by SIGKILL, the other one still has everything that the ranks started below itself and ends it.
#pragma once

#include <sys/types.h>

#include <functional>

#include "launcher/processes/job_cgroup.h"
#include "launcher/system/signals.h"
#include "launcher/system/unique_fd.h"

namespace launcher {

// What the supervisor process is given.
struct Guarded {
  SignalSource& signals;
  UniqueFd lifeline;        // readable (end of file) when the guardian is gone
  UniqueFd terminal_input;  // what is typed, when standard input is a terminal; else empty
  const JobCgroup* cgroup;  // for the ranks; null where there is none
  pid_t guardian = 0;
  pid_t guardian_group = 0;  // the guardian's process group, which the terminal knows
};

// Runs `supervise` in a child process and returns its exit status. `supervise` must not throw.
int run_guarded(SignalSource& signals, const std::function<int(Guarded)>& supervise);

}  // namespace launcher
