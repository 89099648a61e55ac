#include "launcher/plan/outcome/notices.h"

#include <chrono>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/signals.h"
#include "launcher/plan/outcome/describe.h"
#include "launcher/plan/outcome/first_failure.h"
#include "launcher/plan/outcome/job_status.h"

namespace launcher {

using std::chrono::system_clock;

FailureNotice notice_of_failure(const JobEnd& job, std::size_t first) {
  const RankEnd& rank = job.ranks[first];
  const std::chrono::duration<double> time(failure_time(rank, job));
  return {.exit_status = status_of(rank),
          .text = "rank " + std::to_string(rank.rank) + " on host " + job.host + " " + describe_end(rank),
          .time = system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(time)),
          .is_consequence = is_consequence(rank)};
}

FailureNotice notice_of_stop(const std::string& host, int signal) {
  return {.exit_status = to_int(ExitStatus::kSignalBase) + signal,
          .text = "ddprun on host " + host + " received " + signal_name(signal),
          .time = system_clock::now(),
          .is_final = true,
          .may_rejoin = true,
          .stop_signal = signal};
}

FailureNotice notice_of_loss(const std::string& host) {
  return {.exit_status = 1,
          .text = "one of ddprun's processes on host " + host + " was killed",
          .time = system_clock::now(),
          .is_final = true,
          .may_rejoin = true};
}

FailureNotice notice_of_timeout(const std::string& host, const std::string& reason, bool restarts) {
  return {.exit_status = to_int(ExitStatus::kTimeout),
          .text = reason + " (host " + host + ")",
          .time = system_clock::now(),
          .is_final = !restarts};
}

}  // namespace launcher
