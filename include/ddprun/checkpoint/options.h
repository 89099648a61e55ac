// Settings of loads, and of which checkpoints are kept. Does not use LibTorch.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp {

/// Maps the names of tensors in a file to names of the model. It consists of pairs of a prefix and its replacement,
/// each applied once and in order, or of any function of the name. A name that becomes empty is not loaded.
///
///     .rename = {{"model.", ""}, {"backbone.", "encoder."}}
///     .rename = [](const std::string& name) { return "encoder." + name; }
class NameMap {
 public:
  /// Leaves every name as it is.
  NameMap() = default;
  /// Replaces prefixes of names: pairs {prefix, replacement}, each applied once and in order.
  NameMap(std::initializer_list<std::pair<std::string, std::string>> beginnings);
  /// Any function of a name that returns the new one.
  template <typename Function>
  requires std::is_invocable_r_v<std::string, const Function&, const std::string&> NameMap(Function function)
      : function_(std::move(function)) {}

  /// The model's name for the file's `name`; empty if the tensor is not to be loaded.
  std::string operator()(const std::string& name) const { return function_ ? function_(name) : name; }
  /// Whether names are changed at all.
  explicit operator bool() const { return static_cast<bool>(function_); }

 private:
  std::function<std::string(const std::string&)> function_;
};

/// Settings of load_weights(), load_checkpoint() and CheckpointManager's loads, all optional.
struct LoadOptions {
  /// False: names that only the model or only the file has, and parts of a run that the checkpoint lacks, are listed in
  /// the result; they are not errors. Shapes and dtypes must match in any case.
  bool strict = true;
  /// Patterns of the model's names to load, e.g. {"backbone", "*.bias"} (`*` any text; a plain name means it and all
  /// below it); empty for all. The optimizer is loaded whole.
  std::vector<std::string> only{};
  std::vector<std::string> skip{};  ///< patterns of the model's names to leave as they are
  /// Tensors whose shape differs from the file's keep their values and are listed in `missing`. This loads weights that
  /// were trained for other classes, except the classifier.
  bool skip_other_shapes = false;
  /// Floating-point tensors of another dtype, also those of the optimizer, are converted to the model's dtype (such as
  /// half weights for a float model) instead of being an error. Counters of another dtype are converted if their value
  /// does not change.
  bool cast = false;
  /// Changes the file's names before they are compared with the model's. The prefixes `module.` and `_orig_mod.` (of
  /// wrappers and torch.compile) need no mapping if all names have them.
  NameMap rename{};
  /// The entry that holds the weights if a file has several entries: "ema", or "state.ema" for a nested one. In a file
  /// without entries it selects the tensors whose names have this prefix. Default: the usual keys, see tensor_files.h.
  std::string key{};
};

/// Keeps the checkpoints with the best values of a metric that was given to save().
struct KeepBest {
  std::string metric{};           ///< a name among SaveOptions::metrics
  int count = 1;                  ///< how many checkpoints
  bool higher_is_better = false;  ///< true for an accuracy, false for a loss
};

/// What was loaded from a file.
struct LoadedFile {
  Metadata metadata{};                    ///< the file's
  std::vector<std::string> missing{};     ///< not strict: names of the model that the file lacks
  std::vector<std::string> unexpected{};  ///< not strict: names that the model lacks
};

}  // namespace ddp
