// The optimization levels O0 to O3: the settings of each level, and the options that override them. Reference:
// apex.amp.frontend, before it was removed from apex.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ddprun/comm/process_group.h>

namespace ddp::amp {

/// A loss scale: a positive number, "dynamic", or the text of a number such as "128.0".
class LossScale {
 public:
  /// Throws std::invalid_argument for a number that is not finite or not above 0.
  LossScale(double value);
  /// "dynamic" or the text of a number. Throws std::invalid_argument for any other text.
  LossScale(const char* text) : LossScale(std::string_view(text)) {}
  /// The same for a std::string.
  LossScale(const std::string& text) : LossScale(std::string_view(text)) {}
  /// The same for a std::string_view.
  LossScale(std::string_view text);

  /// Whether the scale adapts to overflows instead of being constant.
  bool is_dynamic() const { return !value_; }
  double value() const { return value_.value(); }  ///< the scale; only if it is not dynamic

 private:
  std::optional<double> value_;
};

/// True or false, or the texts "True" and "False", which apex also accepted.
class Flag {
 public:
  /// A flag with this value.
  Flag(bool value) : value_(value) {}
  /// Throws std::invalid_argument for any other text.
  Flag(const char* text) : Flag(std::string_view(text)) {}
  /// The same for a std::string.
  Flag(const std::string& text) : Flag(std::string_view(text)) {}
  /// The same for a std::string_view.
  Flag(std::string_view text);
  /// The value.
  operator bool() const { return value_; }

 private:
  bool value_;
};

/// Settings of initialize(), all optional and equal on all ranks. The settings from cast_model_type to loss_scale
/// override the values of the level.
struct Options {
  bool enabled = true;           ///< false: amp does nothing
  std::string opt_level = "O1";  ///< "O0", "O1", "O2" or "O3"
  /// The 16-bit type of the levels O1 to O3: c10::kHalf, as in apex, or c10::kBFloat16. bfloat16 has the range of
  /// float32, so the loss scale is then 1 unless `loss_scale` is set.
  c10::ScalarType dtype = c10::kHalf;

  std::optional<c10::ScalarType> cast_model_type{};  ///< the dtype of the model and its inputs
  std::optional<bool> patch_torch_functions{};       ///< autocast in the model's forward and in autocast()
  std::optional<Flag> keep_batchnorm_fp32{};         ///< batch norms stay float32 even if cast_model_type has 16 bits
  std::optional<bool> master_weights{};              ///< the optimizer works on float copies of 16-bit parameters
  std::optional<LossScale> loss_scale{};             ///< a fixed scale, or "dynamic"

  std::optional<c10::ScalarType> cast_model_outputs{};  ///< the dtype of the model's outputs, at every level
  int num_losses = 1;                                   ///< number of loss scales, one per `loss_id`
  /// The smallest value of a dynamic loss scale. A warning is printed once when a scale reaches it, as by GradScaler.
  /// Default: 2^-24 (or max_loss_scale if that is less), so that no scale becomes 0; apex has no default minimum.
  std::optional<double> min_loss_scale{};
  double max_loss_scale = 16777216.0;  ///< the largest value of a dynamic loss scale
  /// The group whose rank is named in errors. Default: the rank in the launcher's environment variables.
  std::optional<GroupHandle> group{};
};

/// The settings that result from a level and its overrides.
struct Properties {
  bool enabled = false;                              ///< false: amp does nothing
  std::string opt_level{};                           ///< "O0", "O1", "O2" or "O3"
  std::optional<c10::ScalarType> cast_model_type{};  ///< the dtype of the model and its inputs; empty: unchanged
  bool patch_torch_functions = false;                ///< the model's forward runs in autocast
  /// Also false where apex has None, because then either nothing or everything is cast.
  bool keep_batchnorm_fp32 = false;
  bool master_weights = false;  ///< the optimizer works on float32 copies of 16-bit parameters
  LossScale loss_scale = 1.0;   ///< the scale, or dynamic
};

/// The state of a loss scaler in a checkpoint, with apex's names.
struct LossScalerState {
  double loss_scale = 1;  ///< the scale
  int64_t unskipped = 0;  ///< good steps since the scale changed
};

/// Returns the properties for `options`. Throws std::runtime_error, with `rank` followed by apex's text, for an unknown
/// level and for overrides that a level does not allow; std::invalid_argument for numbers and dtypes out of range.
Properties resolve(const Options& options, const std::string& rank = "");

}  // namespace ddp::amp
