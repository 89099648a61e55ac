#include "ddprun/checkpoint/checkpoint_manager.h"

#include <torch/nn/module.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <ddprun/base/progress.h>
#include <ddprun/comm/collectives.h>

#include "checkpoint/core/name_pattern.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/directory_writer.h"
#include "checkpoint/failures.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/run_content.h"
#include "checkpoint/run_reader.h"
#include "checkpoint/run_writer.h"
#include "checkpoint/sharded_content.h"
#include "checkpoint/sharded_save.h"
#include "checkpoint/skipped_items.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/set_aside.h"

namespace ddp {
namespace {

RetentionPolicy retention_of(const CheckpointOptions& options) {
  return {.keep_last = options.keep_last, .keep_every = options.keep_every, .keep_best = options.keep_best};
}

void print_notice(const std::string& notice) {
  std::fprintf(stderr, "checkpoints: %s\n", notice.c_str());
}

}  // namespace

CheckpointManager::CheckpointManager(std::filesystem::path directory, const GroupHandle& group,
                                     CheckpointOptions options)
    : directory_(std::move(directory)), group_(group), options_(std::move(options)) {
  if (directory_.empty()) {
    throw std::invalid_argument("CheckpointManager: the directory has no name: expected one, '.' for the current one");
  }
  storage::check_policy(retention_of(options_));
  if (!options_.notify) options_.notify = print_notice;
  if (!options_.file_system) options_.file_system = std::make_shared<storage::FileSystem>();
  if (group_.rank() == 0)
    writer_ = std::make_unique<DirectoryWriter>(*options_.file_system, options_.notify, directory_);
}

CheckpointManager::~CheckpointManager() = default;

void CheckpointManager::agree(const storage::Failure& failure, const std::string& what) const {
  throw_if_failed(failure_of_rank_0(failure, group_), what + " " + directory_.string() + ": ");
}

std::string CheckpointManager::cannot_save() const {
  return "cannot save in " + directory_.string() + ": ";
}

void CheckpointManager::claim() {
  wait();
  Failure failure;
  if (writer_) failure = failure_of([&] { writer_->claim(); });
  agree(failure, "cannot save in");
}

// Rank 0 decides, because only rank 0 knows whether a divided state was consolidated.
bool CheckpointManager::is_sharded(const TrainingState& state) const {
  bool sharded = options_.sharded.value_or(false);
  throw_if_failed(combined_failures(failure_of([&] {
                                      if (!options_.sharded) sharded = is_divided(state);
                                    }),
                                    group_),
                  "");
  return broadcast_string(sharded ? "+" : "-", 0, group_) == "+";
}

ShardedSave& CheckpointManager::sharded_save() {
  if (!shards_) {
    shards_ = std::make_unique<ShardedSave>(
        *options_.file_system, options_.notify, writer_.get(), group_,
        ShardedSaveOptions{.directory = directory_, .staging_bytes = options_.staging_bytes});
  }
  return *shards_;
}

// Waits for the save under way; the same failure on all ranks.
Failure CheckpointManager::finish_save() {
  auto failure = failure_of_rank_0(writer_ ? writer_->finish() : Failure(), group_);
  if (shards_) failure += combined_failures(shards_->finish(), group_);
  return failure;
}

void CheckpointManager::check(const TrainingState& state) {
  throw_if_failed(failure_of([&] {
                    const bool sharded = is_sharded(state);
                    check_run(state, group_, sharded);
                    if (sharded)
                      throw_if_failed(combined_failures(failure_of([&] { check_shards(state); }), group_), "");
                  }),
                  "this state cannot be saved in " + directory_.string() + ": ");
}

void CheckpointManager::save(int64_t step, const TrainingState& state, const SaveOptions& options) {
  if (step < 0) throw std::invalid_argument("a checkpoint's step must not be negative, but is " + std::to_string(step));
  const progress::PhaseScope phase(progress::Phase::kCheckpoint);
  // The memory of the save under way is needed for this one.
  auto failure = finish_save();
  bool sharded = false;
  RunContent content;
  ShardedContent shards;
  auto not_collected = failure_of([&] {
    sharded = is_sharded(state);
    content = collect_run(step, state, group_, /*with_tensors=*/!sharded);
    if (sharded) shards = collect_shards(state, group_, options_.notify);
  });
  if (not_collected) {  // fails on all ranks; the ranks may have been called with different steps
    failure += failure_of_rank_0(save_failure(step, std::move(not_collected)), group_);
    throw_if_failed(failure, cannot_save());
  }
  const RunDestination destination{.directory = directory_,
                                   .step = step,
                                   .world_size = group_.size(),
                                   .metrics = options.metrics,
                                   .retention = retention_of(options_)};
  if (sharded) {
    auto& save = sharded_save();
    Failure outcome;
    const auto broken = failure_of([&] {
      outcome = options_.async ? save.write_async(destination, std::move(content), shards)
                               : save.write_sync(destination, content, shards);
    });
    failure += outcome;
    failure += combined_failures(save_failure(step, broken), group_);
    throw_if_failed(failure, cannot_save());
    return;
  }
  Failure not_written;
  if (writer_) {
    not_written = save_failure(step, failure_of([&] {
                                 if (options_.async) {
                                   writer_->write_async(destination, std::move(content));
                                 } else {
                                   writer_->write_sync(destination, content);
                                 }
                               }));
  }
  failure += failure_of_rank_0(not_written, group_);
  throw_if_failed(failure, cannot_save());
}

// The folders to try, newest first, as rank 0 finds them.
std::vector<std::filesystem::path> CheckpointManager::list_candidates() const {
  constexpr char kEnd = '/';  // no name contains it
  std::string names;
  Failure failure;
  if (writer_) {
    failure = failure_of([&] {
      Failure unusable;
      for (const auto& entry : storage::list_checkpoints(*options_.file_system, directory_)) {
        if (!entry.failure) {
          names += entry.folder.filename().string() + kEnd;
        } else {
          const auto damage = describe_damage(*options_.file_system, entry.folder, entry.failure);
          options_.notify("skipped: " + damage.text);
          unusable += damage;
        }
      }
      if (names.empty()) throw_if_failed(unusable, "no valid checkpoint is left: ");
      const auto what = names.empty() ? describe_unsupported_folder(directory_) : "";
      if (!what.empty()) throw std::runtime_error("it holds no checkpoint of ddprun: " + what);
    });
  }
  agree(failure, "cannot load from");
  std::istringstream list(broadcast_string(names, 0, group_));
  std::vector<std::filesystem::path> folders;
  for (std::string name; std::getline(list, name, kEnd);) folders.push_back(directory_ / name);
  return folders;
}

std::optional<LoadedCheckpoint> CheckpointManager::load_latest(const TrainingState& state, const LoadOptions& options) {
  wait();
  Failure failures;
  for (std::vector<std::filesystem::path> tried;;) {
    const auto folders = list_candidates();
    if (folders.empty()) return std::nullopt;
    // A process that saves there may have removed these folders, but then it has written newer ones.
    if (folders == tried) throw_if_failed(failures, "cannot load from " + directory_.string() + ": ");
    tried = folders;
    failures = {};
    if (auto loaded = restore(folders, state, options, failures)) return loaded;
  }
}

LoadedCheckpoint CheckpointManager::load(int64_t step, const TrainingState& state, const LoadOptions& options) {
  return load(storage::find_checkpoint(*options_.file_system, directory_, step), state, options);
}

LoadedCheckpoint CheckpointManager::load(const std::filesystem::path& folder, const TrainingState& state,
                                         const LoadOptions& options) {
  wait();
  Failure failure;
  if (auto loaded = restore({folder}, state, options, failure)) return *loaded;
  static_cast<void>(failure_of([&] {  // a folder that cannot be listed is not the folder of a run
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored)) return;
    const auto inside = storage::list_checkpoints(*options_.file_system, folder);
    if (inside.empty()) return;
    failure.text =
        "this is the folder of a run, not a checkpoint; its newest checkpoint is " + inside.front().folder.string();
  }));
  throw std::runtime_error("cannot load from " + folder.string() + ": " + failure.text);
}

std::optional<LoadedCheckpoint> CheckpointManager::restore(const std::vector<std::filesystem::path>& folders,
                                                           const TrainingState& state, const LoadOptions& options,
                                                           storage::Failure& failures) {
  const progress::PhaseScope phase(progress::Phase::kCheckpoint);
  for (const auto& folder : folders) {
    ReceivedRun run;
    std::unique_ptr<PreparedRun> prepared;
    Failure failure;  // to load a checkpoint whose files are intact
    auto unusable = receive_run(*options_.file_system, folder, options_.reader, group_, options.key, run);
    if (!unusable) {
      failure = combined_failures(failure_of([&] {
                                    prepared = std::make_unique<PreparedRun>(*options_.file_system, run, folder, state,
                                                                             options, group_);
                                  }),
                                  group_);
      // Chunks are read late, when the needs of each rank are known, so damage may be found only now.
      if (failure.kind >= FailureKind::kDamaged) unusable = std::exchange(failure, {});
    }
    const auto cannot_load = "cannot load from " + folder.string() + ": ";
    if (unusable.kind == FailureKind::kShortage) throw_if_failed(unusable, cannot_load);
    if (unusable) {
      const bool is_gone = !storage::is_there(folder);  // removed while it was read
      if (writer_ && folders.size() > 1 && !is_gone) options_.notify("skipped: " + unusable.text);
      failures += unusable;
      continue;
    }
    if (!failure) {
      failure = combined_failures(failure_of([&] { prepared->apply_objects(); }), group_);
      if (failure) prepared->roll_back();
    }
    throw_if_failed(failure, cannot_load);
    prepared->apply_tensors();
    const auto& result = prepared->result();
    if (writer_ && !run.skipped.empty()) {
      options_.notify(folder.string() + ": not read: " + list_skipped({.skipped = run.skipped}));
    }
    if (writer_ && state.rng && !result.rng_restored) {
      options_.notify(!prepared->starts_new_streams()
                          ? "the checkpoint holds no random-number states: the ranks keep their current ones"
                          : "the ranks start with new random-number states: the checkpoint was saved by " +
                                std::to_string(result.world_size) + (result.world_size == 1 ? " rank" : " ranks") +
                                ", and this job has " + std::to_string(group_.size()));
    }
    return result;
  }
  return std::nullopt;
}

std::vector<CheckpointInfo> CheckpointManager::list() const {
  std::vector<CheckpointInfo> infos;
  for (auto& entry : storage::list_checkpoints(*options_.file_system, directory_)) {
    infos.push_back({.step = entry.step,
                     .folder = std::move(entry.folder),
                     .metrics = std::move(entry.manifest.metrics),
                     .damage = std::move(entry.failure.text)});
  }
  return infos;
}

void CheckpointManager::prune() {
  wait();
  Failure failure;
  if (writer_) {
    failure = failure_of([&] {
      writer_->claim();
      prune_checkpoints(*options_.file_system, directory_, retention_of(options_));
    });
  }
  agree(failure, "cannot remove checkpoints in");
}

void CheckpointManager::wait() {
  throw_if_failed(finish_save(), cannot_save());
}

std::optional<std::filesystem::path> CheckpointManager::set_aside() {
  claim();
  std::string folder;
  Failure failure;
  if (writer_) {
    failure = failure_of([&] {
      if (const auto aside = storage::set_aside_checkpoints(*options_.file_system, directory_))
        folder = aside->string();
    });
  }
  agree(failure, "cannot set an earlier run's checkpoints aside in");
  folder = broadcast_string(folder, 0, group_);
  if (folder.empty()) return std::nullopt;
  return folder;
}

}  // namespace ddp
