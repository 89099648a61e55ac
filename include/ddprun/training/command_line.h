// Options of training programs for CLI11 (https://github.com/CLIUtils/CLI11). The program must provide CLI11; in
// ddprun, only this header and ddprun/base/option_checks.h include it.
#pragma once

#include <CLI/CLI.hpp>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include <ddprun/amp/opt_level.h>
#include <ddprun/base/option_checks.h>
#include <ddprun/base/rank_info.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/data/loader.h>
#include <ddprun/training/run_recorder.h>
#include <ddprun/training/training_options.h>

namespace ddp {

// Each add_options() adds options to `app`. Parsing stores the values in `options`, which must outlive `app`. The
// previous values are the defaults. If an option is given twice, the last value is used, as in argparse. This also
// applies to options that the program adds afterwards.

/// Adds --backend, and --local_rank or --local-rank, which old launchers pass in addition to RANK and WORLD_SIZE. The
/// variable LOCAL_RANK, which current launchers set, has precedence. Parsing throws std::invalid_argument for launcher
/// variables that contradict each other.
inline void add_options(CLI::App& app, ProcessGroupOptions& options) {
  app.option_defaults()->take_last();
  app.add_option("--backend", options.backend, "shm, gloo, nccl, cpu:gloo,cuda:nccl")->group("Job");
  app.add_option_function<int>(
         "--local_rank,--local-rank",
         [&options](int local_rank) {
           const auto environment = process_environment();
           options.rank_info = rank_info_from_environment([&](const std::string& name) {
             auto value = environment(name);
             if (!value && name == "LOCAL_RANK") value = std::to_string(local_rank);
             return value;
           });
         },
         "Set by old launchers; LOCAL_RANK comes first")
      ->check(whole(0))
      ->group("Job");
}

/// Adds --batch-size and --workers.
inline void add_options(CLI::App& app, LoaderOptions& options) {
  app.option_defaults()->take_last();
  app.add_option("--batch-size", options.batch_size, "Samples per rank and backward pass")
      ->check(whole(1, int64_t{1} << 30))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--workers", options.workers, "Threads that prepare batches; 0: none")
      ->check(whole(0, 1024))
      ->capture_default_str()
      ->group("Data");
}

/// Adds --amp and --opt-level, for amp::initialize(). Without --amp, mixed precision is disabled.
inline void add_options(CLI::App& app, amp::Options& options) {
  app.option_defaults()->take_last();
  options.enabled = false;
  auto* amp = app.add_option_function<std::string>(
                     "--amp",
                     [&options](const std::string& type) {
                       options.enabled = true;
                       options.dtype = type == "fp16" ? c10::kHalf : c10::kBFloat16;
                     },
                     "Mixed precision with fp16 or bf16")
                  ->check(CLI::IsMember({"fp16", "bf16"}))
                  ->group("Precision");
  app.add_option("--opt-level", options.opt_level, "With --amp: apex's O0, O1, O2 or O3")
      ->check(CLI::IsMember({"O0", "O1", "O2", "O3"}))
      ->needs(amp)
      ->capture_default_str()
      ->group("Precision");
}

/// Adds --tensorboard and --metrics.
inline void add_options(CLI::App& app, RunRecorderOptions& options) {
  app.option_defaults()->take_last();
  app.add_option("--tensorboard", options.tensorboard, "Write TensorBoard events into DIR")
      ->check(output_folder())
      ->type_name("DIR")
      ->group("Output");
  app.add_option("--metrics", options.metrics, "Write metrics of each epoch, .csv or .jsonl")
      ->check(metrics_file())
      ->type_name("FILE")
      ->group("Output");
}

/// Adds --epochs, --lr, --seed, --checkpoint-dir, --resume, and the options of the parts of TrainingOptions. A program
/// that does not support an option should remove it with app.remove_option(), or add the parts one by one.
inline void add_options(CLI::App& app, TrainingOptions& options) {
  app.option_defaults()->take_last();
  app.add_option("--epochs", options.epochs, "Epochs in total, including those before a resume")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str()
      ->group("Training");
  app.add_option("--lr", options.lr, "Learning rate (resumed: the checkpoint's)")
      ->check(finite(0))
      ->capture_default_str()
      ->group("Training");
  app.add_option("--seed", options.seed, "Random seed (resumed: the checkpoint's)")
      ->check(unsigned64())
      ->capture_default_str()
      ->group("Training");
  add_options(app, options.loader);
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "Folder for the checkpoint of each epoch")
      ->check(output_folder())
      ->capture_default_str()
      ->group("Checkpoints");
  app.add_option("--resume", options.resume, "Resume FOLDER, or the newest checkpoint")
      ->type_name("[FOLDER]")
      ->expected(0, 1)
      ->group("Checkpoints");
  add_options(app, options.recorder);
  add_options(app, options.process_group);
}

}  // namespace ddp
