// From how the ranks ended to ddprun's exit status. Pure.
#pragma once

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// The status to pass on for one rank's end: its exit code, or 128 + signal.
int status_of(const RankEnd& rank);
// Of ranks that were told to stop by `signal`: no failure when every one saved and left on its own, else 128 + signal.
int status_of_stop(const JobEnd& job, int signal);
// ddprun's exit status.
int exit_status(const JobEnd& job);
// The same with --exit_code torchrun: 1 for whatever comes from the ranks or from a signal.
int torchrun_exit_status(const JobEnd& job);

}  // namespace launcher
