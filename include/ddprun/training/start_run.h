// Begins a run or resumes an earlier one, and describes the job in one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/training/training_options.h>

namespace ddp {

/// Returns the seed of a run, for manual_seed(), samplers and datasets: `options.seed`, or, if start_run() will resume
/// from a checkpoint, the value "seed" in that checkpoint. (If a checkpoint has no such value, or is a .pt file,
/// `options.seed` is used.) Call it on every rank before the first use of the seed. Save the result:
/// `state.values.set("seed", seed)`.
uint64_t seed_of_run(const TrainingOptions& options, const GroupHandle& group);

/// The result of start_run().
struct RunStart {
  int64_t step = 0;                             ///< the next epoch or step, in the unit that the checkpoints count
  std::optional<LoadedCheckpoint> loaded = {};  ///< empty if the run begins from the start
};

/// Loads the checkpoint that `resume` specifies into `state`, claims the manager's directory for this run, and prints
/// on the console what it did. `resume` is one of the following:
///
///   - std::nullopt: the run begins from the start, and the checkpoints of an earlier run are set aside
///     (CheckpointManager::set_aside()). If the launcher has started the job again after a failure (--max_restarts), or
///     Slurm has requeued it, this is the same as an empty text.
///   - An empty text: the newest checkpoint of the directory. If the directory has no checkpoint, the run begins from
///   the start.
///   - Any other text: the folder of a checkpoint, or a .pt file.
///
/// `unit` is the unit in which the manager's checkpoints count, and is printed on the console.
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
