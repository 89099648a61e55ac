// A training run's state as the files of a checkpoint, in memory. Collecting it is a collective; writing it is not.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/checkpoint/training_state.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// File names and contents. Tensors refer to the model's own memory until take_snapshot() is called.
struct RunContent {
  struct Tensors {
    TensorMap tensors{};
    Metadata metadata{};
  };
  std::map<std::string, Tensors> safetensors{};
  std::map<std::string, std::string> texts{};
};

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kRanksFile = "ranks.safetensors";
inline constexpr const char* kValuesFile = "trainer.json";

/// "optim.safetensors" for the main optimizer, whose name is empty, and "optim-<name>.safetensors".
std::string optimizer_file(const std::string& name);

/// The objects that all ranks share, by file name.
std::map<std::string, Stateful> shared_objects(const TrainingState& state);

/// All optimizers, by their names; the main one's is empty.
std::map<std::string, OptimizerRef> optimizers_by_name(const TrainingState& state);

/// This rank's own state (random generators, per_rank), as tensors.
std::map<std::string, Stateful> rank_objects(const TrainingState& state, const GroupHandle& group);

/// Throws std::invalid_argument where there is no model, by whose names the optimizer `name` is saved.
void check_has_model(const TrainingState& state, const std::string& name);

/// Whether collect_run() and the write that follows it can save `state`, as far as that is known before the training:
/// models, optimizers, names, values and what objects save. Nothing is written; which step the ranks stand at does not
/// count. `is_sharded`: all ranks will save models and optimizers together. Every rank must call it. Throws
/// std::runtime_error with the same text on all ranks, naming the part.
void check_run(const TrainingState& state, const GroupHandle& group, bool is_sharded);

/// What rank 0 writes; empty on the other ranks. `with_tensors`: also models and optimizers; without, they are saved by
/// all ranks together. Every rank must call it with the same step. Throws std::runtime_error with the same text on all
/// ranks when any part cannot be saved.
RunContent collect_run(int64_t step, const TrainingState& state, const GroupHandle& group, bool with_tensors);

}  // namespace ddp
