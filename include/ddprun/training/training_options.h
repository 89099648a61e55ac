// The settings that most trainers have, for programs to fill from their command line
// (<ddprun/training/command_line.h>) or any other way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ddprun/comm/process_group.h>
#include <ddprun/data/loader.h>
#include <ddprun/training/run_recorder.h>

namespace ddp {

/// Each part has the type that a function of the library accepts: `init_process_group(options.process_group)`, a loader
/// with `options.loader`, a RunRecorder with `options.recorder`, start_run() with `options.resume`.
struct TrainingOptions {
  int64_t epochs = 10;                         ///< in all, those before a resume included
  double lr = 0.1;                             ///< learning rate
  uint64_t seed = 0;                           ///< for manual_seed() and samplers
  LoaderOptions loader{.batch_size = 32};      ///< batch size and workers
  std::string checkpoint_dir = "checkpoints";  ///< where checkpoints are saved
  std::optional<std::string> resume{};         ///< a checkpoint's folder; empty for the newest one in checkpoint_dir
  RunRecorderOptions recorder{};               ///< where curves and metrics go
  ProcessGroupOptions process_group{};         ///< how the ranks connect
};

}  // namespace ddp
