// The optimization levels O0 to O3: what each sets, and how options change that. Reference: apex.amp.frontend, before
// apex dropped it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ddprun/comm/process_group.h>

namespace ddp::amp {

/// A loss scale: a number, "dynamic", or a number's text such as "128.0".
class LossScale {
 public:
  /// Throw std::invalid_argument for a number that is not finite and above 0, or another text.
  LossScale(double value);
  /// "dynamic" or a number's text. Throws std::invalid_argument for another text.
  LossScale(const char* text) : LossScale(std::string_view(text)) {}
  /// The same of a std::string.
  LossScale(const std::string& text) : LossScale(std::string_view(text)) {}
  /// The same of a view.
  LossScale(std::string_view text);

  /// Whether the scale follows overflows instead of being one number.
  bool is_dynamic() const { return !value_; }
  double value() const { return value_.value(); }  ///< of one that is not dynamic

 private:
  std::optional<double> value_;
};

/// True or false, or their texts "True" and "False", as apex took them.
class Flag {
 public:
  /// A flag with this value.
  Flag(bool value) : value_(value) {}
  /// Throws std::invalid_argument for another text.
  Flag(const char* text) : Flag(std::string_view(text)) {}
  /// The same of a std::string.
  Flag(const std::string& text) : Flag(std::string_view(text)) {}
  /// The same of a view.
  Flag(std::string_view text);
  /// The value.
  operator bool() const { return value_; }

 private:
  bool value_;
};

/// Settings of initialize(), all optional and equal on all ranks. Those from cast_model_type to loss_scale override the
/// values that the level sets.
struct Options {
  bool enabled = true;           ///< false: every call passes through, as if there were no amp
  std::string opt_level = "O1";  ///< "O0", "O1", "O2" or "O3"
  /// The 16-bit type of the levels O1 to O3: c10::kHalf, as in apex, or c10::kBFloat16. bfloat16 has the range of
  /// float32, so the loss scale is then 1 unless `loss_scale` is set.
  c10::ScalarType dtype = c10::kHalf;

  std::optional<c10::ScalarType> cast_model_type{};  ///< the model's and its inputs' type
  std::optional<bool> patch_torch_functions{};       ///< autocast in the model's forward and autocast()
  std::optional<Flag> keep_batchnorm_fp32{};         ///< batch norms keep float32, with a 16-bit cast_model_type
  std::optional<bool> master_weights{};              ///< the optimizer works on float copies of 16-bit parameters
  std::optional<LossScale> loss_scale{};             ///< a fixed scale, or "dynamic"

  std::optional<c10::ScalarType> cast_model_outputs{};  ///< the type of the model's outputs, whatever the level
  int num_losses = 1;                                   ///< loss scales, one per `loss_id`
  /// The smallest value of a dynamic loss scale. A warning is printed once when a scale reaches it, as by GradScaler.
  /// Default: 2^-24 (or max_loss_scale if that is less), so that no scale becomes 0; apex has no default minimum.
  std::optional<double> min_loss_scale{};
  double max_loss_scale = 16777216.0;  ///< the largest value of a dynamic loss scale
  /// Names the rank in errors. Default: the rank in the launcher's variables.
  std::optional<GroupHandle> group{};
};

/// The settings that result from a level and its overrides.
struct Properties {
  bool enabled = false;                              ///< false: every call passes through
  std::string opt_level{};                           ///< "O0", "O1", "O2" or "O3"
  std::optional<c10::ScalarType> cast_model_type{};  ///< the model's and its inputs' type; empty: left as it is
  bool patch_torch_functions = false;                ///< the model's forward runs in autocast
  bool keep_batchnorm_fp32 = false;                  ///< false where apex has None: nothing is cast then, or all is
  bool master_weights = false;                       ///< the optimizer works on float32 copies of 16-bit parameters
  LossScale loss_scale = 1.0;                        ///< the scale, or dynamic
};

/// The state of a loss scaler in a checkpoint, with apex's names.
struct LossScalerState {
  double loss_scale = 1;  ///< the scale
  int64_t unskipped = 0;  ///< good steps since the scale changed
};

/// The properties of `options`. Throws std::runtime_error with apex's text, beginning with `rank`, for an unknown level
/// and for overrides that a level refuses; std::invalid_argument for numbers and types out of range.
Properties resolve(const Options& options, const std::string& rank = "");

}  // namespace ddp::amp
