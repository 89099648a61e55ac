#include "ddprun/training/start_run.h"

#include <filesystem>

#include <ddprun/comm/main_process.h>

namespace ddp {

RunStart start_run(CheckpointManager& checkpoints, const TrainingState& state, const GroupHandle& group,
                   const std::optional<std::string>& resume, const std::string& unit) {
  if (!resume && group.info().restart_count == 0) {
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
    print_on_main(group, "no checkpoint in ", checkpoints.directory().string(), " yet: starting from the beginning");
    return start;
  }
  start.step = start.loaded->step;
  print_on_main(group, "resumed from ", start.loaded->folder.string(), ": continuing with ", unit, " ", start.step);
  return start;
}

}  // namespace ddp
