// Settings of loads and of which checkpoints stay. No LibTorch here.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp {

/// Turns a file's names into the model's: pairs of a beginning and what stands in its place, each applied once and in
/// turn, or any function of the name; a name that becomes empty is left out.
///
///     .rename = {{"model.", ""}, {"backbone.", "encoder."}}
///     .rename = [](const std::string& name) { return "encoder." + name; }
class NameMap {
 public:
  /// Leaves every name as it is.
  NameMap() = default;
  /// Replaces beginnings of names: {beginning, what stands in its place}, each once and in turn.
  NameMap(std::initializer_list<std::pair<std::string, std::string>> beginnings);
  /// Any function of a name that returns the new one.
  template <typename Function>
  requires std::is_invocable_r_v<std::string, const Function&, const std::string&> NameMap(Function function)
      : function_(std::move(function)) {}

  /// The model's name for the file's `name`; empty to leave it out.
  std::string operator()(const std::string& name) const { return function_ ? function_(name) : name; }
  /// Whether names are changed at all.
  explicit operator bool() const { return static_cast<bool>(function_); }

 private:
  std::function<std::string(const std::string&)> function_;
};

/// Settings of load_weights(), load_checkpoint() and CheckpointManager's loads, all optional.
struct LoadOptions {
  /// False: names that only the model or only the file has are listed in the result instead of refused, and so are
  /// parts of a run that the checkpoint lacks. Shapes and dtypes must fit in any case.
  bool strict = true;
  /// Patterns of the model's names to load, e.g. {"backbone", "*.bias"} (`*` any text; a plain name means it and all
  /// below it); empty for all. The optimizer is loaded whole.
  std::vector<std::string> only{};
  std::vector<std::string> skip{};  ///< patterns of the model's names to leave as they are
  /// Tensors of another shape than the model's are left as they are and listed among `missing`: of weights that were
  /// trained for other classes all but the classifier.
  bool skip_other_shapes = false;
  /// Floating-point tensors are converted to the model's dtype (half weights into a float model, and back) instead of
  /// refused, the optimizer's too; and so are counters of another dtype that keep their value.
  bool cast = false;
  /// The file's names, before they are compared with the model's. Beginnings `module.` and `_orig_mod.` that all names
  /// share (wrappers, torch.compile) need none.
  NameMap rename{};
  /// The entry that holds the weights, where a file holds several: "ema", or "state.ema" for nested ones. Of a file
  /// without entries: the tensors whose names begin so. Default: the usual keys, see tensor_files.h.
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
