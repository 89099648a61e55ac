#include "checkpoint/checkpoint_manager.h"

#include <cstdio>
#include <future>
#include <stdexcept>
#include <utility>

#include <torch/nn/module.h>

#include "checkpoint/failures.h"
#include "checkpoint/host_snapshot.h"
#include "checkpoint/name_pattern.h"
#include "checkpoint/run_content.h"
#include "checkpoint/run_reader.h"
#include "checkpoint/run_writer.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "comm/collectives.h"

namespace ddp {
namespace {

RetentionPolicy retention_of(const CheckpointOptions& options) {
  return {.keep_last = options.keep_last, .keep_every = options.keep_every, .keep_best = options.keep_best};
}

void print_notice(const std::string& notice) {
  std::fprintf(stderr, "checkpoints: %s\n", notice.c_str());
}

}  // namespace

// Rank 0's hand: at most one save at a time, at once or on a thread.
class CheckpointManager::Writer {
 public:
  Writer(storage::FileSystem& file_system, const Notify& notify) : file_system_(file_system), notify_(notify) {}

  ~Writer() {
    const auto failure = finish();
    if (!failure.empty()) notify_(failure);
  }

  /// Waits for the save under way; why it failed.
  std::string finish() {
    if (!under_way_.valid()) return "";
    return under_way_.get();
  }

  void write_now(const RunDestination& destination, const RunContent& content) {
    clean(destination.directory);
    write_run(file_system_, destination, content, notify_);
  }

  void write_later(const RunDestination& destination, RunContent content) {
    for (auto& [file, part] : content.safetensors) part.tensors = snapshot_.take(file, part.tensors);
    clean(destination.directory);
    under_way_ = std::async(std::launch::async, [this, destination, content = std::move(content)] {
      auto failure = failure_of([&] {
        snapshot_.wait();
        write_run(file_system_, destination, content, notify_);
      });
      if (!failure.empty()) failure = "step " + std::to_string(destination.step) + " was not saved: " + failure;
      return failure;
    });
  }

  /// Removes what killed processes left; best effort, since nothing depends on it.
  void clean(const std::filesystem::path& directory) {
    if (std::exchange(is_clean_, true)) return;
    const auto failure = failure_of([&] { storage::remove_leftovers(file_system_, directory); });
    if (!failure.empty()) notify_("leftovers of an interrupted save stay: " + failure);
  }

 private:
  storage::FileSystem& file_system_;
  const Notify& notify_;
  HostSnapshot snapshot_;
  std::future<std::string> under_way_;
  bool is_clean_ = false;
};

CheckpointManager::CheckpointManager(std::filesystem::path directory, const GroupHandle& group,
                                     CheckpointOptions options)
    : directory_(std::move(directory)), group_(group), options_(std::move(options)) {
  storage::check_policy(retention_of(options_));
  if (!options_.notify) options_.notify = print_notice;
  if (!options_.file_system) options_.file_system = std::make_shared<storage::FileSystem>();
  if (group_.rank() == 0) writer_ = std::make_unique<Writer>(*options_.file_system, options_.notify);
}

CheckpointManager::~CheckpointManager() = default;

void CheckpointManager::agree(const std::string& failure, const std::string& what) const {
  const auto agreed = broadcast_string(failure, 0, group_);
  if (!agreed.empty()) throw std::runtime_error(what + " " + directory_.string() + ": " + agreed);
}

void CheckpointManager::save(int64_t step, const TrainingState& state, const SaveOptions& options) {
  if (step < 0) throw std::invalid_argument("a checkpoint's step must not be negative, but is " + std::to_string(step));
  // The memory of the save under way is needed for this one.
  const auto earlier = writer_ ? writer_->finish() : "";
  std::string failure;
  RunContent content;
  failure = failure_of([&] { content = collect_run(step, state, group_); });
  if (writer_ && failure.empty()) {
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
  if (!failure.empty()) failure = "step " + std::to_string(step) + " was not saved: " + failure;
  if (!earlier.empty()) failure = earlier + (failure.empty() ? "" : "; " + failure);
  agree(failure, "cannot save in");
}

std::optional<LoadedCheckpoint> CheckpointManager::load_latest(const TrainingState& state, const LoadOptions& options) {
  wait();
  std::string steps;
  std::string failure;
  if (writer_) {
    writer_->clean(directory_);
    failure = failure_of([&] {
      std::string damages;
      for (const auto& entry : storage::list_checkpoints(*options_.file_system, directory_)) {
        if (entry.damage.empty()) {
          steps += std::to_string(entry.step) + " ";
        } else {
          options_.notify("passed over: " + entry.damage);
          damages += (damages.empty() ? "" : "; ") + entry.damage;
        }
      }
      if (steps.empty() && !damages.empty()) throw std::runtime_error("no valid checkpoint is left: " + damages);
    });
  }
  agree(failure, "cannot load from");
  steps = broadcast_string(steps, 0, group_);
  std::vector<std::filesystem::path> candidates;
  for (size_t begin = 0; begin < steps.size();) {
    const auto end = steps.find(' ', begin);
    candidates.push_back(directory_ / storage::folder_name(std::stoll(steps.substr(begin, end - begin))));
    begin = end + 1;
  }
  return restore(candidates, state, options);
}

LoadedCheckpoint CheckpointManager::load(int64_t step, const TrainingState& state, const LoadOptions& options) {
  return load(directory_ / storage::folder_name(step), state, options);
}

LoadedCheckpoint CheckpointManager::load(const std::filesystem::path& folder, const TrainingState& state,
                                         const LoadOptions& options) {
  wait();
  return *restore({folder}, state, options);
}

std::optional<LoadedCheckpoint> CheckpointManager::restore(const std::vector<std::filesystem::path>& folders,
                                                           const TrainingState& state, const LoadOptions& options) {
  std::string damages;
  for (const auto& folder : folders) {
    ReceivedRun run;
    const auto damage = receive_run(*options_.file_system, folder, options_.reader, group_, options.key, run);
    if (!damage.empty()) {
      if (writer_ && folders.size() > 1) options_.notify("passed over: " + damage);
      damages += (damages.empty() ? "" : "; ") + damage;
      continue;
    }
    std::unique_ptr<PreparedRun> prepared;
    auto failure = combined_failures(
        failure_of([&] { prepared = std::make_unique<PreparedRun>(run, folder, state, options, group_); }), group_);
    if (failure.empty()) {
      failure = combined_failures(failure_of([&] { prepared->apply_objects(); }), group_);
      if (!failure.empty()) prepared->roll_back();
    }
    if (!failure.empty()) throw std::runtime_error("cannot load from " + directory_.string() + ": " + failure);
    prepared->apply_tensors();
    const auto& result = prepared->result();
    if (writer_ && state.rng && !result.rng_restored) {
      options_.notify(result.world_size == group_.size()
                          ? "the checkpoint holds no random streams: they are left as they are"
                          : "the random streams start anew: the checkpoint was saved by " +
                                std::to_string(result.world_size) + " ranks, and these are " +
                                std::to_string(group_.size()));
    }
    return result;
  }
  if (!folders.empty()) throw std::runtime_error("cannot load from " + directory_.string() + ": " + damages);
  return std::nullopt;
}

std::vector<CheckpointInfo> CheckpointManager::list() const {
  std::vector<CheckpointInfo> infos;
  for (auto& entry : storage::list_checkpoints(*options_.file_system, directory_)) {
    infos.push_back({.step = entry.step,
                     .folder = std::move(entry.folder),
                     .metrics = std::move(entry.manifest.metrics),
                     .damage = std::move(entry.damage)});
  }
  return infos;
}

void CheckpointManager::prune() {
  wait();
  std::string failure;
  if (writer_) {
    failure = failure_of([&] { prune_checkpoints(*options_.file_system, directory_, retention_of(options_)); });
  }
  agree(failure, "cannot remove checkpoints in");
}

void CheckpointManager::wait() {
  agree(writer_ ? writer_->finish() : "", "cannot save in");
}

std::vector<std::string> freeze_layers(ModuleRef model, const std::vector<std::string>& patterns) {
  std::vector<std::string> frozen;
  for (const auto& pattern : patterns) {
    bool found = false;
    for (const auto& item : model.get().named_parameters()) {
      if (!matches(item.key(), pattern)) continue;
      found = true;
      if (!item.value().requires_grad()) continue;
      item.value().set_requires_grad(false);
      frozen.push_back(item.key());
    }
    if (!found) throw std::invalid_argument("no parameter of the model matches '" + pattern + "'");
  }
  return frozen;
}

}  // namespace ddp
