// Derives ddprun's exit status from how the ranks ended. Pure.
#pragma once

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/outcome/first_failure.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// The status to pass on for one rank's end: its exit code, or 128 + signal.
inline int status_of(const RankEnd& rank) {
  return rank.signal != 0 ? to_int(ExitStatus::kSignalBase) + rank.signal : rank.exit_code;
}
// The status when the ranks were asked to stop by `signal`: no failure if every rank saved its state and ended by
// itself, else 128 + signal.
inline int status_of_stop(const JobEnd& job, int signal) {
  bool saved = false;
  for (const RankEnd& rank : job.ranks) {
    if (!rank.failed()) continue;
    if (rank.exit_code != to_int(ExitStatus::kSavedAndStopped)) return to_int(ExitStatus::kSignalBase) + signal;
    saved = true;
  }
  return to_int(saved ? ExitStatus::kSavedAndStopped : ExitStatus::kSuccess);
}
inline int exit_status(const JobEnd& job) {
  if (job.agreed_status) return *job.agreed_status;
  if (job.elsewhere) return job.elsewhere->exit_status;
  if (const auto first = first_failure(job)) {
    const RankEnd& culprit = job.ranks[*first];
    // The rank was about to end by itself when ddprun's signal ended it.
    if (culprit.stop_requested && culprit.signal != 0) return 1;
    return status_of(culprit);
  }
  if (job.is_late()) return to_int(ExitStatus::kTimeout);
  if (job.stop_signal == 0) return to_int(ExitStatus::kSuccess);
  return status_of_stop(job, job.stop_signal);
}
// The status with --exit_code torchrun: 1 for every failure of a rank and for every signal.
inline int torchrun_exit_status(const JobEnd& job) {
  const int status = exit_status(job);
  const bool is_own = !job.elsewhere && job.is_late() && !first_failure(job);
  return status == 0 || is_own ? status : 1;
}

}  // namespace launcher
