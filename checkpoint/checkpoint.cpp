#include "ddprun/checkpoint/checkpoint.h"

#include <torch/nn/module.h>

#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/tensor_files.h>
#include <ddprun/comm/collectives.h>

#include "checkpoint/chunked_tensors.h"
#include "checkpoint/failures.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/run_content.h"
#include "checkpoint/skipped_items.h"

namespace ddp {
namespace {

void write_checkpoint(const std::filesystem::path& path, const CheckpointState& state, Metadata metadata) {
  const auto model = module_state(state.model.get());
  require_whole(model, "a checkpoint in one file", "Save with CheckpointManager, for which each rank writes its rows.");
  auto tensors = model;
  if (metadata.count(kOptimizerKey) != 0) {
    throw std::invalid_argument(std::string("the metadata key ") + kOptimizerKey + " is reserved");
  }
  if (state.optimizer)
    metadata[kOptimizerKey] = save_optimizer_state(*state.optimizer, model, tensors, names_in_order(state.model));
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  save_safetensors(path, tensors, metadata);
}

// Everything a checkpoint holds, verified and in memory, but not yet in the model.
struct VerifiedState {
  LoadedFile file;
  std::vector<Assignment> model;
  std::unique_ptr<StoredTensors> optimizer_file{};  // referred to by `optimizer`
  std::unique_ptr<LoadedOptimizerState> optimizer;
  std::string skipped{};  // of the file, for a warning

  void apply() const {
    assign(model);
    if (optimizer) optimizer->apply();
  }
};

// This rank's share where several ranks verify a folder together.
struct ReadShare {
  int index = 0;
  int shares = 1;
};

// Files that hold chunks of tensors are opened first. They are read later, when the rows that this rank needs are
// known.
class CheckpointFiles {
 public:
  CheckpointFiles(const std::filesystem::path& path, const std::string& key, const ReadShare& share)
      : path_(path), key_(key) {
    if (!is_sharded_folder(file_system_, path)) return;
    folder_ = open_sharded_folder(file_system_, path);
    // A checksum covers a whole item, but a rank reads only the rows that it needs. So the ranks verify all items
    // together.
    static_cast<void>(verify_dcp_items(file_system_, *folder_, share.index, share.shares));
  }

  StoredPart model() {
    if (!folder_) return {.stored = open_tensors(path_, key_)};
    auto part = part_of(kModelFile);
    part.stored = select_entry(std::move(part.stored), key_);
    part.stored.skipped = folder_->skipped;
    return part;
  }

  /// `model` is what model() has returned.
  StoredPart optimizer(const StoredPart& model) {
    if (folder_) return part_of(optimizer_file(""));
    // With a key, the entry with the weights holds no optimizer: the file is opened again without the key.
    return {.stored = key_.empty() ? model.stored : open_tensors(path_)};
  }

 private:
  StoredPart part_of(const std::string& name) {
    const auto found = folder_->parts.find(name);
    if (found == folder_->parts.end()) throw std::runtime_error(path_.string() + " holds no " + name);
    auto& chunks = chunks_.emplace_back(file_system_, *found->second, path_, name);
    return {.stored = chunks.described(), .chunks = &chunks};
  }

  storage::FileSystem file_system_;
  std::filesystem::path path_;
  std::string key_;
  std::optional<ShardedFolder> folder_;
  std::deque<ChunkedTensors> chunks_;
};

VerifiedState read_checkpoint(const std::filesystem::path& path, const CheckpointState& state,
                              const LoadOptions& options, const ReadShare& share) {
  const auto model = module_state(state.model.get());
  CheckpointFiles files(path, options.key, share);
  const auto weights = files.model();
  auto match = read_matching(weights.stored, model, optimizer_tensor_names(weights.stored), options);
  take_values(weights, match.assignments);
  if (weights.chunks != nullptr) weights.chunks->read();
  VerifiedState verified{.file = {.metadata = weights.stored.metadata,
                                  .missing = std::move(match.missing),
                                  .unexpected = std::move(match.unexpected)},
                         .model = std::move(match.assignments),
                         .optimizer = nullptr,
                         .skipped = list_skipped(weights.stored)};
  verified.file.metadata.erase(kOptimizerKey);
  if (state.optimizer) {
    verified.optimizer_file = std::make_unique<StoredTensors>(
        optimizer_values(files.optimizer(weights), *state.optimizer, model, options.rename));
    verified.optimizer = read_optimizer_state(*verified.optimizer_file, *state.optimizer, model, options);
  }
  return verified;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const CheckpointState& state, const GroupHandle& group,
                     const Metadata& metadata) {
  Failure failure;
  if (group.rank() == 0) failure = failure_of([&] { write_checkpoint(path, state, metadata); });
  throw_if_failed(failure_of_rank_0(failure, group), "cannot save the checkpoint " + path.string() + ": ");
}

LoadedFile load_checkpoint(const std::filesystem::path& path, const CheckpointState& state, const GroupHandle& group,
                           const LoadOptions& options) {
  // The process that writes the file may have been rank 0 just now.
  barrier(group);
  VerifiedState verified;
  const auto failure = failure_of([&] {
    verified = read_checkpoint(path, state, options, {group.rank(), group.size()});
  });
  throw_if_failed(combined_failures(failure, group), "cannot load the checkpoint: ");
  if (group.rank() == 0) warn_of_skipped(path.string(), verified.skipped);
  verified.apply();
  return verified.file;
}

LoadedFile load_weights(const std::filesystem::path& path, AnyModuleRef model, const GroupHandle& group,
                        const LoadOptions& options) {
  // Each rank has rows that no other one can give it.
  if (has_shards(module_state(model.get()))) return load_checkpoint(path, {.model = model}, group, options);
  LoadedFile loaded;
  Failure failure;
  if (group.rank() == 0) failure = failure_of([&] { loaded = load_weights(path, model, options); });
  throw_if_failed(failure_of_rank_0(failure, group), "cannot load the weights: ");
  return loaded;
}

LoadedFile load_weights(const std::filesystem::path& path, AnyModuleRef model, const LoadOptions& options) {
  const auto verified = read_checkpoint(path, {.model = model}, options, {});
  warn_of_skipped(path.string(), verified.skipped);
  verified.apply();
  return verified.file;
}

}  // namespace ddp
