// Checkpoints of a training run on several ranks: a directory with one folder per saved step, each complete or absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/checkpoint/options.h>
#include <ddprun/checkpoint/training_state.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/detail/checkpoint/storage/file_system.h>

namespace ddp {

namespace storage {
struct Failure;
}

class DirectoryWriter;
class ShardedSave;

/// Which ranks read a checkpoint's files.
enum class CheckpointReader {
  kRankZero,   ///< rank 0 reads and sends the bytes to the others: no shared file system needed
  kEveryRank,  ///< every rank maps the files into memory: less memory and traffic on a shared file system
};

/// Settings of CheckpointManager, all optional and equal on all ranks.
struct CheckpointOptions {
  // Which checkpoints are kept: those that at least one of these three options selects, or all if none is set. The
  // newest valid checkpoint is always kept: the one that was saved last, whatever its step.
  std::optional<int> keep_last{};       ///< this many of the newest
  std::optional<int64_t> keep_every{};  ///< steps that are multiples of this
  std::optional<KeepBest> keep_best{};  ///< those with the best values of a metric given to save()

  /// True: every rank writes its part of models and optimizers, which needs a directory that all ranks share. False:
  /// rank 0 writes all. Default: true if no rank has the whole state (fully_shard(), ZeroRedundancyOptimizer).
  std::optional<bool> sharded{};

  /// save() returns when the state has been copied to host memory; a thread then writes it. That memory and that thread
  /// are rank 0's, or for a sharded checkpoint each rank's.
  bool async = false;
  /// For an asynchronous sharded save: the most bytes of the state that a rank holds in host memory at once. save()
  /// returns when at most this many bytes still wait to be written.
  uint64_t staging_bytes = uint64_t{256} << 20;
  CheckpointReader reader = CheckpointReader::kRankZero;  ///< which ranks read the files of a checkpoint that is loaded
  /// Is called on rank 0 with each notice: about a damaged checkpoint that is skipped, or random streams that differ
  /// from the saved ones. Default: prints one line on standard error for each. With `async`, the writer's thread calls
  /// it too.
  std::function<void(const std::string& notice)> notify{};
  /// How files are accessed; tests replace it.
  std::shared_ptr<storage::FileSystem> file_system{};
};

/// Settings of one save().
struct SaveOptions {
  std::map<std::string, double> metrics{};  ///< rank 0's; for keep_best, and shown by ddprun-checkpoint
};

/// What was loaded.
struct LoadedCheckpoint {
  int64_t step = 0;    ///< the step (or epoch) that it was saved under
  int world_size = 1;  ///< number of ranks that saved it, or that load it where the format does not store that number
  std::filesystem::path folder{};           ///< where it was
  std::map<std::string, double> metrics{};  ///< those of SaveOptions::metrics
  CheckpointValues values{};                ///< TrainingState::values when it was saved
  std::vector<std::string> missing{};       ///< parts that the checkpoint lacks, if that is allowed
  std::vector<std::string> unexpected{};    ///< not strict: names that the model lacks
  bool rng_restored = false;                ///< whether the random streams continue as saved
};

/// One line of list().
struct CheckpointInfo {
  int64_t step = 0;                         ///< the step (or epoch) that it was saved under
  std::filesystem::path folder{};           ///< where it is
  std::map<std::string, double> metrics{};  ///< those of SaveOptions::metrics
  std::string damage{};  ///< why it cannot be loaded; empty if all its files exist (their contents are not read)
};

/// Saves and restores a run. One manager, and one job, per directory.
///
///     ddp::CheckpointManager checkpoints("runs/cifar10", group, {.keep_last = 3});
///     const ddp::TrainingState state{.model = net, .optimizer = optimizer, .sampler = loader};
///     const auto start = checkpoints.load_latest(state);
///     for (int64_t epoch = start ? start->step : 0; epoch < 10; ++epoch) {
///       …
///       checkpoints.save(epoch + 1, state);
///     }
///
/// Only rank 0 writes: the models and optimizers once, and the states that differ between ranks, which it gathers.
/// Python can read model.safetensors and optim.safetensors directly. If the state is sharded over the ranks, all ranks
/// write: see CheckpointOptions::sharded. Any number of ranks loads either kind, sharded or not.
///
/// A manager that saves holds a lock on the directory from its first save() or claim() until it is destroyed. A second
/// manager that saves there, in any process, gets an error that names the process with the lock. Loading changes
/// nothing in the directory and needs no write permission. Any number of processes may load while one saves.
class CheckpointManager {
 public:
  /// Not a collective; does not access any file. Throws std::invalid_argument for counts below 1.
  CheckpointManager(std::filesystem::path directory, const GroupHandle& group, CheckpointOptions options = {});

  /// Waits until an asynchronous save is on disk. If that save failed, `notify` gets the reason.
  ~CheckpointManager();
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  /// Takes the directory for this manager's saves now instead of at the first save(): a second manager fails before
  /// training instead of at its first save. Every rank must call it. Throws std::runtime_error on all ranks, naming the
  /// process that saves there.
  void claim();

  /// Checks before the training whether save() can save `state`: each model's tensors, each optimizer's class and
  /// parameters, names, values, and the states of other objects. Writes nothing. Every rank must call it. Throws
  /// std::runtime_error with the same text on all ranks, naming the optimizer, the parameter or the object, and what to
  /// do. start_run() calls it. (It cannot check the metrics and steps that later calls of save() get.)
  void check(const TrainingState& state);

  /// Prepares the directory for a new run: calls claim(), then moves the checkpoints of an earlier run into a new
  /// folder `previous-<n>` of the directory. Returns that folder, or nothing if there were no checkpoints. Every rank
  /// must call it; throws as save() does.
  std::optional<std::filesystem::path> set_aside();

  /// Saves the state after `step` steps (or epochs): the folder `step-N` appears complete or not at all, even after a
  /// crash, and replaces an earlier one of the same step. Then checkpoints that the options do not keep are removed.
  /// Every rank must call it with the same step and at the same position of its sampler. Throws std::runtime_error with
  /// the same text on all ranks when it fails on any, when the ranks are at different places of the run, when an
  /// earlier asynchronous save has failed (this one is still saved), or when another manager saves into the directory;
  /// training can continue.
  void save(int64_t step, const TrainingState& state, const SaveOptions& options = {});

  /// Restores the newest valid checkpoint (the one that was saved last), or returns nothing if there is no checkpoint.
  /// It skips damaged checkpoints with a notice, and skips checkpoints that another process removes during the call.
  /// Every rank must call it. All files are verified before the state changes, and all ranks load or no rank does.
  /// Throws std::runtime_error with every rank's reason, also if checkpoints exist but none of them is valid.
  std::optional<LoadedCheckpoint> load_latest(const TrainingState& state, const LoadOptions& options = {});

  /// The same for the checkpoint of one step. Throws when it is absent or damaged.
  LoadedCheckpoint load(int64_t step, const TrainingState& state, const LoadOptions& options = {});

  /// The same for a checkpoint's folder, wherever it is and whatever its name, or for a .pt file that Python saved:
  /// what python/ddprun_checkpoint.py writes, or a dict under the usual keys (docs/checkpoints.md lists them).
  LoadedCheckpoint load(const std::filesystem::path& folder, const TrainingState& state,
                        const LoadOptions& options = {});

  /// The checkpoints that this process finds in the directory, newest first. Not a collective.
  std::vector<CheckpointInfo> list() const;

  /// Removes the checkpoints that the options do not keep, as each save() does. Rank 0 removes them. Every rank must
  /// call it; throws as save() does.
  void prune();

  /// Returns when no asynchronous save is under way. Every rank must call it; throws as save() does.
  void wait();

  /// The directory that the constructor was given.
  const std::filesystem::path& directory() const { return directory_; }

 private:
  bool is_sharded(const TrainingState& state) const;
  ShardedSave& sharded_save();
  storage::Failure finish_save();
  std::string cannot_save() const;
  std::vector<std::filesystem::path> list_candidates() const;
  std::optional<LoadedCheckpoint> restore(const std::vector<std::filesystem::path>& folders, const TrainingState& state,
                                          const LoadOptions& options, storage::Failure& failures);
  void agree(const storage::Failure& failure, const std::string& what) const;

  std::filesystem::path directory_;
  GroupHandle group_;
  CheckpointOptions options_;
  std::unique_ptr<DirectoryWriter> writer_;  // rank 0's
  std::unique_ptr<ShardedSave> shards_;      // since the first sharded save
};

}  // namespace ddp
