#include "ddprun/training/start_run.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "base/schedulers/launcher_variables.h"
#include "checkpoint/run_content.h"
#include "checkpoint/storage/set_aside.h"

namespace ddp {
namespace {

// Whether the launcher has restarted the ranks after a failure, or Slurm has requeued the job.
bool is_restart(const GroupHandle& group) {
  const auto requeued = environment_variable("SLURM_RESTART_COUNT");
  return group.info().restart_count > 0 || (requeued && !requeued->empty() && *requeued != "0");
}

bool continues_run(const std::optional<std::string>& resume, const GroupHandle& group) {
  return resume || is_restart(group);
}

// Returns the checkpoint that start_run() is about to load; empty if it loads none.
std::filesystem::path checkpoint_of(const TrainingOptions& options, const GroupHandle& group) {
  if (options.resume && !options.resume->empty()) return *options.resume;
  const auto all = CheckpointManager(options.checkpoint_dir, group).list();
  const auto newest = std::ranges::find(all, "", &CheckpointInfo::damage);
  return newest != all.end() ? newest->folder : std::filesystem::path();
}

// Returns the seed in the checkpoint. It is empty on an error, which is reported later, when the checkpoint is loaded.
std::string saved_seed(const std::filesystem::path& folder) {
  std::ifstream file(folder / kValuesFile);
  std::ostringstream text;
  if (folder.empty() || !(text << file.rdbuf())) return "";
  try {
    const auto values = CheckpointValues::from_json(text.str());
    return values.contains("seed") ? std::to_string(values.get<uint64_t>("seed")) : "";
  } catch (const std::exception&) {
    return "";
  }
}

// Returns a hint about an earlier run, for a message that names no checkpoint.
std::string earlier_run(const std::filesystem::path& directory) {
  storage::FileSystem files;
  const auto aside = storage::newest_set_aside(files, directory);
  return aside ? " (an earlier run's checkpoints are in " + aside->string() + ")" : "";
}

}  // namespace

uint64_t seed_of_run(const TrainingOptions& options, const GroupHandle& group) {
  if (!continues_run(options.resume, group)) return options.seed;
  const std::string own = group.rank() == 0 ? saved_seed(checkpoint_of(options, group)) : "";
  const std::string seed = broadcast_string(own, 0, group);
  return seed.empty() ? options.seed : std::stoull(seed);
}

RunStart start_run(CheckpointManager& checkpoints, const TrainingState& state, const GroupHandle& group,
                   const std::optional<std::string>& resume, const std::string& unit) {
  checkpoints.check(state);
  if (!continues_run(resume, group)) {
    if (const auto aside = checkpoints.set_aside()) {
      print_on_main(group, "starting a new run: the earlier run's checkpoints are now in ", aside->string());
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
