// The state of torch::optim::SGD, Adam, AdamW and Adagrad (and of optimizers with their options) under Python's names:
// tensors `state.<parameter>.<field>`, and the hyper-parameters of each group as JSON. Python's ddprun.checkpoint
// makes of both what torch.optim and torch.distributed.checkpoint take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/options.h>
#include <ddprun/checkpoint/safetensors.h>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Under which name a file holds `field` of the state of `parameter`.
std::string optimizer_tensor_name(const std::string& parameter, const std::string& field);

/// The names of a model's parameters, of which tied weights have several.
class ParameterNames {
 public:
  /// `order` has the model's names in the order in which they were registered; what it lacks follows.
  explicit ParameterNames(const TensorMap& model, const std::vector<std::string>& order = {});

  /// The first name, as Python's named_parameters() gives it. Throws std::invalid_argument when the model does not have
  /// `parameter`.
  const std::string& of(const at::Tensor& parameter) const;
  /// The same; null when the model does not have it.
  const std::string* find(const at::Tensor& parameter) const;
  /// All of them. Throws as of().
  const std::vector<std::string>& all_of(const at::Tensor& parameter) const;

 private:
  // Memory and shape: a tensor without elements may lie where another begins.
  using Key = std::tuple<const void*, int64_t, std::vector<int64_t>>;
  static Key key_of(const at::Tensor& tensor);

  std::map<Key, std::vector<std::string>> names_;
};

/// The metadata key under which save_optimizer_state()'s JSON is stored.
inline constexpr const char* kOptimizerKey = "ddprun.optimizer";

/// Whether the state of `optimizer`, whose parameters are tensors of `model`, can be saved. Throws
/// std::invalid_argument naming the optimizer by `title` and its first parameter that `model` lacks, or its class when
/// that is not known. Reads no state: also an optimizer that is sharded over ranks can be checked at any time.
void check_optimizer(const torch::optim::Optimizer& optimizer, const TensorMap& model, const std::string& title);

/// "the optimizer", or "the optimizer 'name'" of a name that is not empty.
std::string optimizer_title(const std::string& name);

/// Whose state save_optimizer_state() takes.
enum class StateOf {
  kAllRanks,  ///< of an optimizer whose state is divided over ranks the whole, which must be on this rank
  kThisRank,  ///< what this rank keeps
};

/// Adds the state of `optimizer`, whose parameters are tensors of `model`, to `tensors`, under the first of each
/// parameter's names in `order`, see ParameterNames; returns type and param_groups as JSON. Throws
/// std::invalid_argument when the optimizer is of another type or has a parameter that the model lacks.
std::string save_optimizer_state(const torch::optim::Optimizer& optimizer, const TensorMap& model, TensorMap& tensors,
                                 const std::vector<std::string>& order = {},
                                 const std::string& title = optimizer_title(""), StateOf of = StateOf::kAllRanks);

/// Names of the tensors in `stored` that belong to an optimizer. Throws std::runtime_error when its JSON is damaged.
std::set<std::string> optimizer_tensor_names(const StoredTensors& stored);

/// An optimizer state that was read and verified, but not yet given to the optimizer.
class LoadedOptimizerState {
 public:
  virtual ~LoadedOptimizerState() = default;
  /// Replaces the optimizer's state and hyper-parameters.
  virtual void apply() = 0;
};

/// Reads and verifies the state in `stored` for `optimizer`, whose parameters are tensors of `model`; `cast` and
/// `rename` of the options hold here too. Throws std::runtime_error when the file holds none, or one of another type,
/// other parameters, shapes or dtypes. Python's files name no type; their hyper-parameters identify it: the state of
/// AdamW is refused by Adam unless its weight decay is 0, RAdam's and NAdam's are refused by both.
std::unique_ptr<LoadedOptimizerState> read_optimizer_state(const StoredTensors& stored,
                                                           torch::optim::Optimizer& optimizer, const TensorMap& model,
                                                           const LoadOptions& options = {});

}  // namespace ddp
