#include "ddprun/training/start_run.h"

#include <filesystem>
#include <string>

#include <ddprun/base/launcher_variables.h>
#include <ddprun/comm/main_process.h>

#include "checkpoint/storage/set_aside.h"

namespace ddp {
namespace {

// By the launcher after a failure, or by Slurm, which requeues jobs.
bool was_started_again(const GroupHandle& group) {
  const auto requeued = environment_variable("SLURM_RESTART_COUNT");
  return group.info().restart_count > 0 || (requeued && !requeued->empty() && *requeued != "0");
}

// For a line that has no checkpoint to tell of.
std::string earlier_run(const std::filesystem::path& directory) {
  storage::FileSystem files;
  const auto aside = storage::newest_set_aside(files, directory);
  return aside ? " (an earlier run's checkpoints are in " + aside->string() + ")" : "";
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
                  earlier_run(checkpoints.directory()), ": starting from the beginning");
    return start;
  }
  start.step = start.loaded->step;
  print_on_main(group, "resumed from ", start.loaded->folder.string(), ": continuing with ", unit, " ", start.step);
  return start;
}

}  // namespace ddp
