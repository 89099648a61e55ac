#include "checkpoint/checkpoint.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "checkpoint/failures.h"
#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/skipped_items.h"
#include "checkpoint/tensor_files.h"
#include "comm/collectives.h"

namespace ddp {
namespace {

void write_checkpoint(const std::filesystem::path& path, const CheckpointState& state, Metadata metadata) {
  const auto model = module_state(state.model.get());
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
  Metadata metadata;
  std::vector<Assignment> model;
  std::unique_ptr<LoadedOptimizerState> optimizer;
  std::string skipped{};  // of the file, for a warning

  void apply() const {
    assign(model);
    if (optimizer) optimizer->apply();
  }
};

VerifiedState read_checkpoint(const StoredTensors& file, const CheckpointState& state) {
  const auto model = module_state(state.model.get());
  VerifiedState verified;
  verified.metadata = file.metadata;
  verified.metadata.erase(kOptimizerKey);
  verified.skipped = list_skipped(file);
  verified.model = read_matching(file, model, optimizer_tensor_names(file)).assignments;
  if (state.optimizer) verified.optimizer = read_optimizer_state(file, *state.optimizer, model);
  return verified;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const CheckpointState& state, const GroupHandle& group,
                     const Metadata& metadata) {
  std::string failure;
  if (group.rank() == 0) failure = failure_of([&] { write_checkpoint(path, state, metadata); });
  failure = broadcast_string(failure, 0, group);
  if (!failure.empty()) throw std::runtime_error("cannot save the checkpoint " + path.string() + ": " + failure);
}

Metadata load_checkpoint(const std::filesystem::path& path, const CheckpointState& state, const GroupHandle& group) {
  // Whoever writes the file may have been rank 0 just now.
  barrier(group);
  VerifiedState verified;
  auto failure = failure_of([&] { verified = read_checkpoint(open_tensors(path), state); });
  failure = combined_failures(failure, group);
  if (!failure.empty()) throw std::runtime_error("cannot load the checkpoint: " + failure);
  if (group.rank() == 0) warn_of_skipped(path.string(), verified.skipped);
  verified.apply();
  return verified.metadata;
}

Metadata load_weights(const std::filesystem::path& path, ModuleRef model, const GroupHandle& group) {
  Metadata metadata;
  std::string failure;
  if (group.rank() == 0) failure = failure_of([&] { metadata = load_weights(path, model); });
  failure = broadcast_string(failure, 0, group);
  if (!failure.empty()) throw std::runtime_error("cannot load the weights: " + failure);
  return metadata;
}

Metadata load_weights(const std::filesystem::path& path, ModuleRef model) {
  const auto verified = read_checkpoint(open_tensors(path), {.model = model});
  warn_of_skipped(path.string(), verified.skipped);
  verified.apply();
  return verified.metadata;
}

}  // namespace ddp
