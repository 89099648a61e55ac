#include "launcher/job.h"

#include <optional>
#include <utility>

#include "launcher/job_run.h"
#include "launcher/meeting/trouble.h"
#include "launcher/system/exit_status.h"
#include "launcher/system/launch_error.h"
#include "launcher/system/line.h"

namespace launcher {

int supervise_job(const JobRequest& request, EventLog& events, Guarded guarded) {
  std::optional<JobRun> job;
  try {
    job.emplace(request, events, std::move(guarded));
  } catch (const LaunchError& error) {
    print_line(error.what());
    return tell_other_nodes(request.options, {error.what(), to_int(error.status())});
  }
  return job->run();
}

}  // namespace launcher
