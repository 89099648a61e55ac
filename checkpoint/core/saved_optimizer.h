// An optimizer's description in a file: its type, its groups' parameters and hyper-parameters, from C++ or Python, and
// which optimizer may continue with it. No LibTorch.
#pragma once

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

struct SavedGroup {
  std::vector<std::string> parameters{};  ///< names in the model, or "#0", "#1" … where the file only numbers them
  nlohmann::json options{};               ///< hyper-parameters under Python's names
};

struct SavedOptimizer {
  std::string type{};  ///< Python's name, such as "AdamW"; empty when the file does not say: Python's never do
  std::vector<SavedGroup> groups{};
  /// The file has options for each parameter, and `groups` are those of equal options: flattened ones of
  /// torch.distributed.checkpoint. The program's groups hold.
  bool is_per_parameter = false;
};

/// Reads {"type": …, "param_groups": [{"params": […], …}]}. Throws std::invalid_argument when `text` is anything else.
SavedOptimizer parse_saved_optimizer(std::string_view text);

/// Why the optimizer `type` must not continue with `saved`: it is of another type, or its hyper-parameters say so
/// (decoupled weight decay is AdamW's alone, for example). Empty when it may.
std::string type_conflict(const SavedOptimizer& saved, std::string_view type);

/// Those of `names` that are state of `saved` ("state.<parameter>.<field>") and not tensors of a module called `state`.
std::set<std::string> optimizer_tensors(const SavedOptimizer& saved, const std::set<std::string>& names);

}  // namespace ddp
