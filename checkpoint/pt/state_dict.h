// Finds a model's state dict and an optimizer's state in what a .pt file holds, from C++ or Python. No LibTorch.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// The key of Metadata under which an optimizer's groups are stored as JSON, as in this project's own files.
inline constexpr const char* kOptimizerMetadata = "ddprun.optimizer";

/// Tensors under the names that this project's own files use.
struct StateDict {
  std::map<std::string, TensorEntry> tensors{};  ///< "fc.weight", and "state.#0.exp_avg" of an optimizer
  std::map<std::string, double> scalars{};       ///< numbers that belong among them: "state.#0.step"
  Metadata metadata{};                           ///< kOptimizerMetadata, when there is an optimizer
  /// What stands among them and is not read, by name, and what it is: "mask": "a sparse tensor …".
  std::map<std::string, std::string> skipped{};
  /// What else of an optimizer is not read, by name, and what it is; it is not needed.
  std::map<std::string, std::string> left_out{};
  std::string found_under{};  ///< the key of the model; empty where that is the whole file
  /// Other keys below which a dict holds tensors, with dots between the levels: what select() takes. The first few.
  std::vector<std::string> entries{};
};

/// The number that a tensor of one element holds; nothing for any other tensor.
using ScalarReader = std::function<std::optional<double>(const TensorEntry&)>;

/// `root` may be
///   - a state dict: model.state_dict(), or a dict of tensors, nested ones with dots between the names;
///   - an optimizer's state_dict();
///   - a dict that holds those under the usual keys: model, state_dict, model_state_dict, net, module; optimizer,
///   optim,
///     optimizer_state_dict, optimizer_state, and a list of one under optimizer_states or optimizers;
///   - an archive of LibTorch's torch::save, of a module or of an optimizer.
/// Parameters of an optimizer are numbered, "#0" being the first of its first group. Hyper-parameters that are tensors
/// are read by `read_scalar`, and null without it. Optimizers below other keys are not part of a model. One odd item
/// does not make the others unreadable: it is listed in `skipped`, and so is each object of a class that is not known.
/// Throws FormatError when there is neither.
StateDict find_state(const Value& root, const ScalarReader& read_scalar = {});

/// The keys under which find_state() looks for a model, in that order.
std::span<const std::string_view> model_keys();

/// Whether find_state() looks for a model under `key`.
bool is_model_key(std::string_view key);

/// The only item of a list or tuple of one, as some frameworks write it; else the value itself.
const Value& sole_item(const Value& value);

/// Whether `value` is an optimizer's state_dict().
bool is_optimizer(const Value& value);

}  // namespace ddp::pt
