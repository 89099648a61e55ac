#include "launcher/job/job.h"

#include <optional>
#include <string>
#include <utility>

#include "launcher/job/job_run.h"
#include "launcher/nodes/trouble.h"
#include "launcher/os/system/exit_status.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/outcome/parent_error_file.h"
#include "launcher/plan/variables_behind.h"

namespace launcher {

int supervise_job(const JobRequest& request, EventLog& events, Guarded guarded) {
  const auto text_of = [&](const LaunchError& error) {
    return error.what() + variables_behind(error.what(), request.options.variables);
  };
  std::optional<JobRun> job;
  try {
    job.emplace(request, events, std::move(guarded));
  } catch (const LaunchError& error) {
    const std::string text = text_of(error);
    record_own_error(text);
    print_line(text);
    return tell_other_nodes(request.options, {text, to_int(error.status())});
  }
  try {
    return job->run();
  } catch (const LaunchError& error) {
    record_own_error(text_of(error));
    throw LaunchError(text_of(error), error.status());
  }
}

}  // namespace launcher
