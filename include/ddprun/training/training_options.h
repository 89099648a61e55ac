// The settings that most training programs have. A program sets them from its command line
// (<ddprun/training/command_line.h>) or in another way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ddprun/comm/process_group.h>
#include <ddprun/data/loader.h>
#include <ddprun/training/run_recorder.h>

namespace ddp {

/// Each member has the type that a function of the library accepts: `init_process_group(options.process_group)`, a
/// loader with `options.loader`, a RunRecorder with `options.recorder`, start_run() with `options.resume`.
struct TrainingOptions {
  int64_t epochs = 10;                         ///< total number, including epochs before a resume
  double lr = 0.1;                             ///< learning rate
  uint64_t seed = 0;                           ///< for manual_seed() and samplers
  LoaderOptions loader{.batch_size = 32};      ///< batch size and workers
  std::string checkpoint_dir = "checkpoints";  ///< the folder in which checkpoints are saved
  std::optional<std::string> resume{};  ///< the folder of a checkpoint; empty for the newest one in checkpoint_dir
  RunRecorderOptions recorder{};        ///< the folder and file for curves and metrics
  ProcessGroupOptions process_group{};  ///< how the ranks connect
};

}  // namespace ddp
