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

/// Who reads a checkpoint's files.
enum class CheckpointReader {
  kRankZero,   ///< rank 0 reads and sends the bytes to the others: no shared file system needed
  kEveryRank,  ///< every rank maps the files into memory: less memory and traffic on a shared file system
};

/// Settings of CheckpointManager, all optional and equal on all ranks.
struct CheckpointOptions {
  // A checkpoint is kept when any of these keeps it; all are kept without any. The newest valid one always is: the one
  // that was saved last, whatever its step.
  std::optional<int> keep_last{};       ///< this many of the newest
  std::optional<int64_t> keep_every{};  ///< steps that are multiples of this
  std::optional<KeepBest> keep_best{};  ///< those with the best values of a metric given to save()

  /// True: every rank writes its part of models and optimizers, which needs a directory that all ranks share. False:
  /// rank 0 writes all. Default: true where no rank has the whole (fully_shard(), ZeroRedundancyOptimizer).
  std::optional<bool> sharded{};

  /// save() returns when the state is copied to host memory, and a thread writes it: of rank 0, which costs that memory
  /// once, or, of a sharded checkpoint, of each rank.
  bool async = false;
  /// Of an asynchronous sharded save: the most bytes of the state that a rank has in host memory at once. save()
  /// returns when all but these are on their way to the disk.
  uint64_t staging_bytes = uint64_t{256} << 20;
  CheckpointReader reader = CheckpointReader::kRankZero;  ///< who reads the files of a checkpoint that is loaded
  /// Takes rank 0's notices: damaged checkpoints that are skipped, random streams that are not the saved ones. Default:
  /// one line on standard error each. Called from the writer's thread too when `async` is set.
  std::function<void(const std::string& notice)> notify{};
  /// How files are reached; tests put another one here.
  std::shared_ptr<storage::FileSystem> file_system{};
};

/// Settings of one save().
struct SaveOptions {
  std::map<std::string, double> metrics{};  ///< rank 0's; for keep_best, and shown by ddprun-checkpoint
};

/// What was loaded.
struct LoadedCheckpoint {
  int64_t step = 0;    ///< the step (or epoch) that it was saved under
  int world_size = 1;  ///< number of ranks that saved it; of a form that does not store it, of those that load
  std::filesystem::path folder{};           ///< where it was
  std::map<std::string, double> metrics{};  ///< those of SaveOptions::metrics
  CheckpointValues values{};                ///< TrainingState::values when it was saved
  std::vector<std::string> missing{};       ///< what the checkpoint lacks, where that is allowed
  std::vector<std::string> unexpected{};    ///< not strict: names that the model lacks
  bool rng_restored = false;                ///< the random streams continue where they were
};

/// One line of list().
struct CheckpointInfo {
  int64_t step = 0;                         ///< the step (or epoch) that it was saved under
  std::filesystem::path folder{};           ///< where it is
  std::map<std::string, double> metrics{};  ///< those of SaveOptions::metrics
  std::string damage{};  ///< why it cannot be loaded; empty when its files are all there (their contents are not read)
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
/// Rank 0 alone writes: model and optimizers once, and what differs between ranks, gathered. Python reads
/// model.safetensors and optim.safetensors as they are. Where the state is sharded over the ranks, all ranks write: see
/// CheckpointOptions::sharded. Any number of ranks loads either kind, sharded or not.
///
/// A manager that saves holds a lock on the directory from its first save() or claim() to its end; a second one, of any
/// process, is refused with a message that names the holder. Loading changes nothing there and needs no right to write:
/// any number of processes may load beside one that saves.
class CheckpointManager {
 public:
  /// Not a collective, and touches no file. Throws std::invalid_argument for counts below 1.
  CheckpointManager(std::filesystem::path directory, const GroupHandle& group, CheckpointOptions options = {});

  /// Waits until an asynchronous save is on disk; its failure goes to `notify`.
  ~CheckpointManager();
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  /// Takes the directory for this manager's saves now instead of at the first save(): a second manager fails before
  /// training instead of at its first save. Every rank must call it. Throws std::runtime_error on all ranks, naming the
  /// process that saves there.
  void claim();

  /// Finds out before the training whether save() will take `state`: each model's tensors, each optimizer's class and
  /// parameters, names, values and what objects save. Writes nothing. Every rank must call it. Throws
  /// std::runtime_error with the same text on all ranks, naming the optimizer, the parameter or the object, and what to
  /// do. start_run() calls it. (Which metrics and steps save() is given only the save knows.)
  void check(const TrainingState& state);

  /// Makes room for a new run: claim(), then moves an earlier run's checkpoints into a new folder `previous-<n>` of the
  /// directory, which is returned, or nothing. Every rank must call it; throws as save() does.
  std::optional<std::filesystem::path> set_aside();

  /// Saves the state after `step` steps (or epochs): the folder `step-N` appears whole or not at all, whatever happens,
  /// and replaces an earlier one of the same step; then checkpoints that the options do not keep are removed. Every
  /// rank must call it with the same step, where its sampler stands where the others' do. Throws std::runtime_error
  /// with the same text on all ranks when it fails on any, when the ranks are at different places of the run, when an
  /// earlier asynchronous save has failed (this one is still saved), or when another manager saves into the
  /// directory; training can continue.
  void save(int64_t step, const TrainingState& state, const SaveOptions& options = {});

  /// Restores the newest valid checkpoint, the one that was saved last, passing over damaged ones with a notice and
  /// over those that a process that saves there removes meanwhile, or nothing. Every rank must
  /// call it. Every file is verified before a byte reaches the state, and all ranks load or none does: throws
  /// std::runtime_error with every rank's reason, also when checkpoints exist but none is valid.
  std::optional<LoadedCheckpoint> load_latest(const TrainingState& state, const LoadOptions& options = {});

  /// The same for the checkpoint of one step. Throws when it is absent or damaged.
  LoadedCheckpoint load(int64_t step, const TrainingState& state, const LoadOptions& options = {});

  /// The same for a checkpoint's folder, wherever it is and whatever its name, or for a .pt file that Python saved:
  /// what python/ddprun_checkpoint.py writes, or a dict under the usual keys (docs/checkpoints.md lists them).
  LoadedCheckpoint load(const std::filesystem::path& folder, const TrainingState& state,
                        const LoadOptions& options = {});

  /// What this process finds in the directory, newest first. Not a collective.
  std::vector<CheckpointInfo> list() const;

  /// Removes what the options do not keep, on rank 0, as each save() does. Every rank must call it; throws as save()
  /// does.
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
