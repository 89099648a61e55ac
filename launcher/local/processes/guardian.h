// ddprun is three processes. The one the user started, the guardian, passes signals and terminal input on and reports
// the exit status. Its grandchild, the supervisor, is the parent of all ranks. The sweeper in between does nothing
// while all is well, and is known by another name: what kills the other two, by name or by command line, leaves it.
// Whichever of them are killed, even by SIGKILL, one that is left has everything that the ranks started below itself
// and ends it.
#pragma once

#include <sys/types.h>

#include <functional>

#include "launcher/local/processes/job_cgroup.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/process_title.h"
#include "launcher/os/system/signals.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct SupervisorContext {
  SignalSource& signals;
  UniqueFd guardian_pipe;   // readable (end of file) when the guardian is gone
  UniqueFd terminal_input;  // the input of the terminal, when standard input is one; else empty
  const JobCgroup* cgroup;  // for the ranks, or null
  pid_t guardian = 0;
  pid_t guardian_group = 0;  // the guardian's process group, which the terminal has in its foreground
};

struct SupervisedEnd {
  int exit_status = to_int(ExitStatus::kLauncherError);
  // True when the processes that the ranks left running have ended, or are allowed to stay. Otherwise the sweeper ends
  // them.
  bool needs_no_sweep = false;
};

// Runs `supervise` in a descendant of this process, and returns its exit status here and in the processes between,
// which should exit with it. `supervise` must not throw. Throws LaunchError when no process can be started.
int run_with_guardian(SignalSource& signals, ProcessTitle& title,
                      const std::function<SupervisedEnd(SupervisorContext)>& supervise);

}  // namespace launcher
