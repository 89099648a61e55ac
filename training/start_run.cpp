#include "ddprun/training/start_run.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <ddprun/base/launcher_variables.h>
#include <ddprun/comm/main_process.h>

namespace ddp {
namespace {

// By the launcher after a failure, or by Slurm, which requeues jobs.
bool was_started_again(const GroupHandle& group) {
  const auto requeued = environment_variable("SLURM_RESTART_COUNT");
  return group.info().restart_count > 0 || (requeued && !requeued->empty() && *requeued != "0");
}

// " (earlier runs are in …)", which set_aside() has moved there.
std::string earlier_runs(const std::filesystem::path& directory) {
  std::filesystem::path newest;
  for (int n = 1;; ++n) {
    auto aside = directory / ("previous-" + std::to_string(n));
    std::error_code error;
    if (!std::filesystem::is_directory(aside, error)) break;
    newest = std::move(aside);
  }
  return newest.empty() ? "" : " (an earlier run's checkpoints are in " + newest.string() + ")";
}

}  // namespace

RunStart start_run(CheckpointManager& checkpoints, const TrainingState& state, const GroupHandle& group,
                   const std::optional<std::string>& resume, const std::string& unit) {
  if (!resume && !was_started_again(group)) {
    if (const auto aside = checkpoints.set_aside()) {
      print_on_main(group, "a new run: the earlier one's checkpoints are in ", aside->string(), " now");
    }
    return {};
  }
  RunStart start;
  if (resume && !resume->empty()) {
    start.loaded = checkpoints.load(std::filesystem::path(*resume), state);
  } else {
    start.loaded = checkpoints.load_latest(state);
  }
  checkpoints.claim();
  if (!start.loaded) {
    print_on_main(group, "no checkpoint in ", checkpoints.directory().string(), " yet",
                  earlier_runs(checkpoints.directory()), ": starting from the beginning");
    return start;
  }
  start.step = start.loaded->step;
  print_on_main(group, "resumed from ", start.loaded->folder.string(), ": continuing with ", unit, " ", start.step);
  return start;
}

}  // namespace ddp
