// Begins a run, or resumes an earlier one; and describes the job in one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/training/training_options.h>

namespace ddp {

/// The seed of a run, for manual_seed(), samplers and data sets: `options.seed`, or, if start_run() will resume from a
/// checkpoint, the seed of that run, which is the value "seed" in the checkpoint. (If a checkpoint has no such value,
/// or is a .pt file, `options.seed` is used.) Call it before the first use of the seed, on every rank. Save the result:
/// `state.values.set("seed", seed)`.
uint64_t seed_of_run(const TrainingOptions& options, const GroupHandle& group);

/// The result of start_run().
struct RunStart {
  int64_t step = 0;                             ///< the next epoch or step, in the unit that the checkpoints count
  std::optional<LoadedCheckpoint> loaded = {};  ///< empty when the run begins from the start
};

/// Loads the checkpoint that `resume` names into `state`, claims the manager's directory for this run, and prints on
/// the console what it did. `resume` is - nothing: the run begins from the start, and an earlier one's checkpoints are
/// set aside (CheckpointManager::set_aside()) —
///     unless the launcher has started the job again after a failure (--max_restarts), or Slurm after a requeue: then
///     as if it were empty;
///   - empty: the newest checkpoint of the directory; without any the run begins from the start;
///   - otherwise a checkpoint's folder, or a .pt file.
/// `unit` is what the manager's checkpoints count, for the console.
///
///     ddp::CheckpointManager checkpoints(options.checkpoint_dir, group);
///     const ddp::TrainingState state{.model = net, .optimizer = optimizer};
///     const auto start = ddp::start_run(checkpoints, state, group, options.resume);
///     for (auto epoch = start.step; epoch < options.epochs; ++epoch) { …; checkpoints.save(epoch + 1, state); }
///
/// Every rank must call it with the same arguments, after DistributedDataParallel was made. Throws what the manager's
/// check(), load_latest(), load() and claim() throw: if a state cannot be saved, it throws before it changes anything.
RunStart start_run(CheckpointManager& checkpoints, const TrainingState& state, const GroupHandle& group,
                   const std::optional<std::string>& resume, const std::string& unit = "epoch");

/// "2 ranks × batch 16 × accumulation 1 = global batch 32, device cpu, backend gloo". `batch_size` is a rank's samples
/// per backward pass, `accumulate` the backward passes per optimizer step. Not a collective.
std::string describe_job(const GroupHandle& group, int64_t batch_size, int64_t accumulate = 1);

}  // namespace ddp
