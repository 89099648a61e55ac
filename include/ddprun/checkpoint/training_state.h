// What a checkpoint of a whole training run holds.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include <ddprun/checkpoint/model_refs.h>
#include <ddprun/checkpoint/stateful.h>
#include <ddprun/checkpoint/values.h>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

using OptimizerRef = std::reference_wrapper<torch::optim::Optimizer>;

/// Every part is optional. Names of optimizers and objects are part of file names: letters, digits, `.`, `_`, `-`.
struct TrainingState {
  ModelRefs model = {};  ///< one, or several by name: `.model = {{"generator", generator}, {"critic", critic}}`
  /// SGD, Adam, AdamW or Adagrad of torch::optim, or of another class with their options, over parameters of `model`.
  std::optional<OptimizerRef> optimizer = std::nullopt;
  std::map<std::string, OptimizerRef> optimizers = {};  ///< further ones, by name; each over parameters of any model

  // Equal on all ranks: rank 0's is saved, and every rank loads it.
  Stateful scaler = {};
  Stateful schedule = {};
  Stateful sampler = {};                        ///< a loader or its sampler; must count the samples of all ranks,
                                                ///< which must have used as many at a save
  std::map<std::string, Stateful> shared = {};  ///< anything else, by name: modules and other optimizers too

  /// Different on each rank: every rank's is saved, and loaded when the world size is the same.
  std::map<std::string, Stateful> per_rank = {};

  CheckpointValues values = {};  ///< rank 0's
  /// Every rank's random generators (the CPU's and those of the group's device). With another world size each rank gets
  /// a new stream, drawn from the saved one, its rank and the step.
  bool rng = true;
};

}  // namespace ddp
