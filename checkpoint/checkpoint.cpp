#include "ddprun/checkpoint/checkpoint.h"

#include <torch/nn/module.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/tensor_files.h>
#include <ddprun/comm/collectives.h>

#include "checkpoint/failures.h"
#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/skipped_items.h"

namespace ddp {
namespace {

void write_checkpoint(const std::filesystem::path& path, const CheckpointState& state, Metadata metadata) {
  const auto model = module_state(state.model.get());
  require_whole(model, "a checkpoint in one file", "Save with CheckpointManager, to which each rank gives its rows.");
  auto tensors = model;
  if (metadata.count(kOptimizerKey) != 0) {
    throw std::invalid_argument(std::string("the metadata key ") + kOptimizerKey + " is reserved");
  }
  if (state.optimizer) metadata[kOptimizerKey] = save_optimizer_state(*state.optimizer, model, tensors);
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  save_safetensors(path, tensors, metadata);
}

// Everything a checkpoint holds, verified and in memory, but not yet in the model.
struct VerifiedState {
  LoadedFile file;
  std::vector<Assignment> model;
  std::unique_ptr<LoadedOptimizerState> optimizer;
  std::string skipped{};  // of the file, for a warning

  void apply() const {
    assign(model);
    if (optimizer) optimizer->apply();
  }
};

VerifiedState read_checkpoint(const std::filesystem::path& path, const CheckpointState& state,
                              const LoadOptions& options) {
  const auto model = module_state(state.model.get());
  const auto weights = open_tensors(path, options.key);
  auto match = read_matching(weights, model, optimizer_tensor_names(weights), options);
  VerifiedState verified{.file = {.metadata = weights.metadata,
                                  .missing = std::move(match.missing),
                                  .unexpected = std::move(match.unexpected)},
                         .model = std::move(match.assignments),
                         .optimizer = nullptr,
                         .skipped = list_skipped(weights)};
  verified.file.metadata.erase(kOptimizerKey);
  if (state.optimizer) {
    // The entry with the weights is not the optimizer's.
    const auto whole = options.key.empty() ? weights : open_tensors(path);
    verified.optimizer = read_optimizer_state(whole, *state.optimizer, model, options);
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
  const auto failure = failure_of([&] { verified = read_checkpoint(path, state, options); });
  throw_if_failed(combined_failures(failure, group), "cannot load the checkpoint: ");
  if (group.rank() == 0) warn_of_skipped(path.string(), verified.skipped);
  verified.apply();
  return verified.file;
}

LoadedFile load_weights(const std::filesystem::path& path, AnyModuleRef model, const GroupHandle& group,
                        const LoadOptions& options) {
  LoadedFile loaded;
  Failure failure;
  if (group.rank() == 0) failure = failure_of([&] { loaded = load_weights(path, model, options); });
  throw_if_failed(failure_of_rank_0(failure, group), "cannot load the weights: ");
  return loaded;
}

LoadedFile load_weights(const std::filesystem::path& path, AnyModuleRef model, const LoadOptions& options) {
  const auto verified = read_checkpoint(path, {.model = model}, options);
  warn_of_skipped(path.string(), verified.skipped);
  verified.apply();
  return verified.file;
}

}  // namespace ddp
