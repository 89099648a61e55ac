#include "ddprun/checkpoint/checkpoint_manager.h"

#include <torch/nn/module.h>

#include <cstdio>
#include <future>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <ddprun/base/progress.h>
#include <ddprun/comm/collectives.h>

#include "checkpoint/core/name_pattern.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/failures.h"
#include "checkpoint/host_snapshot.h"
#include "checkpoint/run_content.h"
#include "checkpoint/run_reader.h"
#include "checkpoint/run_writer.h"
#include "checkpoint/skipped_items.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/set_aside.h"
#include "checkpoint/storage/staged_folder.h"
#include "checkpoint/storage/writer_lock.h"

namespace ddp {
namespace {

RetentionPolicy retention_of(const CheckpointOptions& options) {
  return {.keep_last = options.keep_last, .keep_every = options.keep_every, .keep_best = options.keep_best};
}

void print_notice(const std::string& notice) {
  std::fprintf(stderr, "checkpoints: %s\n", notice.c_str());
}

Failure not_saved(int64_t step, Failure failure) {
  if (failure) failure.text = "step " + std::to_string(step) + " was not saved: " + failure.text;
  return failure;
}

}  // namespace

// Saves on rank 0: at most one at a time, in the caller's thread or in one of its own.
class CheckpointManager::Writer {
 public:
  Writer(storage::FileSystem& file_system, const Notify& notify, const std::filesystem::path& directory)
      : file_system_(file_system), notify_(notify), directory_(directory), lock_(file_system, directory, /*rank=*/0) {}

  ~Writer() {
    const auto failure = finish();
    if (failure) notify_(failure.text);
  }

  /// Waits for the save under way; why it failed.
  Failure finish() {
    if (!under_way_.valid()) return {};
    return under_way_.get();
  }

  /// Makes sure that no other process writes. Throws when one does.
  void claim() {
    if (!lock_.hold()) return;
    if (!lock_.excludes_others()) {
      if (!std::exchange(has_warned_, true)) {
        notify_(directory_.string() +
                " is on a file system without locks: take care that no other process saves there; "
                "what interrupted saves left stays");
      }
      return;
    }
    clean();
    is_counted_ = false;
  }

  void write_now(RunDestination destination, const RunContent& content) {
    claim();
    destination.sequence = next_sequence();
    write_run(file_system_, destination, content, notify_);
  }

  /// Throws when another process writes there; finish() returns every other failure.
  void write_later(const RunDestination& destination, RunContent content) {
    try {
      claim();
    } catch (const std::system_error&) {
      // The thread meets the same error, and finish() returns it.
    }
    for (auto& [file, part] : content.safetensors) part.tensors = snapshot_.take(file, part.tensors);
    under_way_ = std::async(std::launch::async, [this, destination, content = std::move(content)] {
      auto failure = failure_of([&] {
        snapshot_.wait();
        write_now(destination, content);
      });
      return not_saved(destination.step, std::move(failure));
    });
  }

 private:
  int64_t next_sequence() {
    if (!is_counted_ || !lock_.excludes_others()) {
      last_sequence_ = storage::last_sequence(file_system_, directory_);
      is_counted_ = true;
    }
    return ++last_sequence_;
  }

  // What killed processes left; best effort, since nothing depends on it.
  void clean() {
    const auto failure = failure_of([&] { storage::remove_leftovers(file_system_, directory_); });
    if (failure) notify_("leftovers of an interrupted save stay: " + failure.text);
  }

  storage::FileSystem& file_system_;
  const Notify& notify_;
  std::filesystem::path directory_;
  storage::WriterLock lock_;
  int64_t last_sequence_ = 0;
  bool is_counted_ = false;  // the directory's checkpoints, since it was taken
  bool has_warned_ = false;
  HostSnapshot snapshot_;
  std::future<Failure> under_way_;
};

CheckpointManager::CheckpointManager(std::filesystem::path directory, const GroupHandle& group,
                                     CheckpointOptions options)
    : directory_(std::move(directory)), group_(group), options_(std::move(options)) {
  if (directory_.empty()) {
    throw std::invalid_argument("CheckpointManager: the directory has no name: expected one, '.' for the current one");
  }
  storage::check_policy(retention_of(options_));
  if (!options_.notify) options_.notify = print_notice;
  if (!options_.file_system) options_.file_system = std::make_shared<storage::FileSystem>();
  if (group_.rank() == 0) writer_ = std::make_unique<Writer>(*options_.file_system, options_.notify, directory_);
}

CheckpointManager::~CheckpointManager() = default;

void CheckpointManager::agree(const storage::Failure& failure, const std::string& what) const {
  throw_if_failed(failure_of_rank_0(failure, group_), what + " " + directory_.string() + ": ");
}

void CheckpointManager::claim() {
  wait();
  Failure failure;
  if (writer_) failure = failure_of([&] { writer_->claim(); });
  agree(failure, "cannot save in");
}

void CheckpointManager::check(const TrainingState& state) {
  throw_if_failed(failure_of([&] { check_run(state, group_); }),
                  "this state cannot be saved in " + directory_.string() + ": ");
}

void CheckpointManager::save(int64_t step, const TrainingState& state, const SaveOptions& options) {
  if (step < 0) throw std::invalid_argument("a checkpoint's step must not be negative, but is " + std::to_string(step));
  const progress::PhaseScope phase(progress::Phase::kCheckpoint);
  // The memory of the save under way is needed for this one.
  auto earlier = writer_ ? writer_->finish() : Failure();
  RunContent content;
  auto failure = failure_of([&] { content = collect_run(step, state, group_); });
  if (writer_ && !failure) {
    failure = failure_of([&] {
      const RunDestination destination{.directory = directory_,
                                       .step = step,
                                       .world_size = group_.size(),
                                       .metrics = options.metrics,
                                       .retention = retention_of(options_)};
      if (options_.async) {
        writer_->write_later(destination, std::move(content));
      } else {
        writer_->write_now(destination, content);
      }
    });
  }
  earlier += not_saved(step, std::move(failure));
  agree(earlier, "cannot save in");
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
          options_.notify("skipped: " + entry.failure.text);
          unusable += entry.failure;
        }
      }
      if (names.empty()) throw_if_failed(unusable, "no valid checkpoint is left: ");
      const auto what = names.empty() ? describe_unsupported_folder(directory_) : "";
      if (!what.empty()) throw std::runtime_error("it holds no checkpoint of this project: " + what);
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
    // A process that saves there may have removed them meanwhile, but then there are newer ones.
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
  static_cast<void>(failure_of([&] {  // where that cannot be listed it is not what was meant
    if (!std::filesystem::is_directory(folder)) return;
    const auto inside = storage::list_checkpoints(*options_.file_system, folder);
    if (inside.empty()) return;
    failure.text = "this is the folder of a run, whose newest checkpoint is " + inside.front().folder.string();
  }));
  throw std::runtime_error("cannot load from " + folder.string() + ": " + failure.text);
}

std::optional<LoadedCheckpoint> CheckpointManager::restore(const std::vector<std::filesystem::path>& folders,
                                                           const TrainingState& state, const LoadOptions& options,
                                                           storage::Failure& failures) {
  const progress::PhaseScope phase(progress::Phase::kCheckpoint);
  for (const auto& folder : folders) {
    ReceivedRun run;
    const auto unusable = receive_run(*options_.file_system, folder, options_.reader, group_, options.key, run);
    const auto cannot_load = "cannot load from " + folder.string() + ": ";
    if (unusable.kind == FailureKind::kShortage) throw_if_failed(unusable, cannot_load);
    if (unusable) {
      std::error_code ignored;
      const bool is_gone = !std::filesystem::exists(folder, ignored);  // removed while it was read
      if (writer_ && folders.size() > 1 && !is_gone) options_.notify("skipped: " + unusable.text);
      failures += unusable;
      continue;
    }
    std::unique_ptr<PreparedRun> prepared;
    auto failure = combined_failures(
        failure_of([&] { prepared = std::make_unique<PreparedRun>(run, folder, state, options, group_); }), group_);
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
      options_.notify(result.world_size == group_.size()
                          ? "the checkpoint holds no random streams: they are left as they are"
                          : "the ranks start new random streams: the checkpoint was saved by " +
                                std::to_string(result.world_size) + (result.world_size == 1 ? " rank" : " ranks") +
                                ", and these are " + std::to_string(group_.size()));
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
  agree(writer_ ? writer_->finish() : Failure(), "cannot save in");
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
