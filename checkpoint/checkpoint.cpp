#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "comm/collectives.h"

namespace ddp {
namespace {

// Runs `action`; the reason why it failed, or nothing.
template <typename Action>
std::string failure_of(Action&& action) {
  try {
    action();
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return *error.what() != '\0' ? error.what() : "unknown error";
  }
}

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

  void apply() const {
    assign(model);
    if (optimizer) optimizer->apply();
  }
};

VerifiedState read_checkpoint(const SafetensorsFile& file, const CheckpointState& state) {
  const auto model = module_state(state.model.get());
  VerifiedState verified;
  verified.metadata = file.header().metadata;
  verified.metadata.erase(kOptimizerKey);
  verified.model = read_matching(file, model, optimizer_tensor_names(file));
  if (state.optimizer) verified.optimizer = read_optimizer_state(file, *state.optimizer, model);
  return verified;
}

// One text for all ranks' failures; empty when there are none.
std::string combine(const std::vector<std::string>& failures) {
  const bool all_equal = std::all_of(failures.begin(), failures.end(),
                                     [&](const std::string& failure) { return failure == failures.front(); });
  if (all_equal) return failures.front();
  std::string text;
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    text += (text.empty() ? "on rank " : "; on rank ") + std::to_string(rank) + ": " + failures[rank];
  }
  return text;
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
  std::unique_ptr<SafetensorsFile> file;
  VerifiedState verified;
  auto failure = failure_of([&] {
    file = std::make_unique<SafetensorsFile>(path);
    verified = read_checkpoint(*file, state);
  });
  failure = combine(all_gather_strings(failure, group));
  if (!failure.empty()) throw std::runtime_error("cannot load the checkpoint: " + failure);
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
  const SafetensorsFile file(path);
  const auto verified = read_checkpoint(file, {.model = model});
  verified.apply();
  return verified.metadata;
}

}  // namespace ddp
