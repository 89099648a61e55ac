// One loss's scale, kept on the loss's device. Reference: apex.amp.scaler.LossScaler.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include <ddprun/amp/opt_level.h>

namespace ddp::amp {

/// What a checkpoint holds of a loss scaler, by apex's names.
struct LossScalerState {
  double loss_scale = 1;
  int64_t unskipped = 0;  ///< good steps since the scale changed
};

namespace detail {

/// Starts at 65536 (or the ceiling), doubles after 2,000 good steps up to the ceiling, halves on overflow down to the
/// floor; or is static.
class LossScaler {
 public:
  LossScaler(const LossScale& scale, std::optional<double> floor, double ceiling);

  bool is_dynamic() const { return dynamic_; }
  /// A static scale of 1, by which nothing needs to be multiplied.
  bool is_one() const { return !dynamic_ && value_ == 1; }

  /// `loss` in float32 times the scale. The first call decides where a dynamic scale is kept.
  at::Tensor apply(const at::Tensor& loss);
  /// 1 / scale, one float32 element on `device`.
  at::Tensor inverse(c10::Device device) const;
  /// After a step's gradients were looked at: `found_inf` is one float32 element, not 0 for an overflow.
  void update(const at::Tensor& found_inf);

  /// The host waits for the device.
  LossScalerState state() const;
  void load(const LossScalerState& state);

 private:
  bool dynamic_;
  std::optional<double> floor_;
  double ceiling_;
  double value_;           // of a static scale, and the first of a dynamic one
  int64_t unskipped_ = 0;  // likewise
  at::Tensor scale_;       // float32; undefined before the first loss
  at::Tensor tracker_;     // int32
};

}  // namespace detail
}  // namespace ddp::amp
