#include "launcher/plan/outcome/job_status.h"

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/outcome/first_failure.h"

namespace launcher {

int status_of(const RankEnd& rank) {
  return rank.signal != 0 ? to_int(ExitStatus::kSignalBase) + rank.signal : rank.exit_code;
}

int status_of_stop(const JobEnd& job, int signal) {
  bool saved = false;
  for (const RankEnd& rank : job.ranks) {
    if (!rank.failed()) continue;
    if (rank.exit_code != to_int(ExitStatus::kSavedAndStopped)) return to_int(ExitStatus::kSignalBase) + signal;
    saved = true;
  }
  return to_int(saved ? ExitStatus::kSavedAndStopped : ExitStatus::kSuccess);
}

int exit_status(const JobEnd& job) {
  if (job.agreed_status) return *job.agreed_status;
  if (job.elsewhere) return job.elsewhere->exit_status;
  if (const auto first = first_failure(job)) {
    const RankEnd& culprit = job.ranks[*first];
    // It was about to end on its own when our own signal ended it.
    if (culprit.stop_requested && culprit.signal != 0) return 1;
    return status_of(culprit);
  }
  if (job.is_late()) return to_int(ExitStatus::kTimeout);
  if (job.stop_signal == 0) return to_int(ExitStatus::kSuccess);
  return status_of_stop(job, job.stop_signal);
}

int torchrun_exit_status(const JobEnd& job) {
  const int status = exit_status(job);
  const bool is_own = !job.elsewhere && job.is_late() && !first_failure(job);
  return status == 0 || is_own ? status : 1;
}

}  // namespace launcher
