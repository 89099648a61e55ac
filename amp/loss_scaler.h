// The scale of one loss, stored on the loss's device. Reference: apex.amp.scaler.LossScaler.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <ddprun/amp/opt_level.h>

namespace ddp::amp {

namespace detail {

class ScaleFloor;

/// A dynamic scale starts at 65536 (or at the ceiling), doubles after 2,000 good steps up to the ceiling, and halves on
/// overflow down to the floor, where it warns once. A static scale does not change.
class LossScaler {
 public:
  /// The default for `floor` is the smallest float16 above 0, or the ceiling if that is less. The warning begins with
  /// `rank`.
  LossScaler(const LossScale& scale, std::optional<double> floor, double ceiling, const std::string& rank = "");

  bool is_dynamic() const { return dynamic_; }
  /// Whether this is a static scale of 1, so that multiplications can be skipped.
  bool is_one() const { return !dynamic_ && value_ == 1; }

  /// Returns `loss` in float32, multiplied by the scale. The first call determines the device on which a dynamic scale
  /// is stored.
  at::Tensor apply(const at::Tensor& loss);
  /// Returns 1 / scale as one float32 element on `device`.
  at::Tensor inverse(c10::Device device) const;
  /// Called after the gradients of a step were checked. `found_inf` is one float32 element, which is not 0 after an
  /// overflow.
  void update(const at::Tensor& found_inf);

  /// Makes the host wait for the device.
  LossScalerState state() const;
  void load(const LossScalerState& state);

 private:
  bool dynamic_;
  bool has_default_floor_;
  double ceiling_;
  std::shared_ptr<ScaleFloor> floor_;
  double value_;           // the static scale, or the initial dynamic scale
  int64_t unskipped_ = 0;  // the same for the counter
  at::Tensor scale_;       // float32; undefined before the first loss
  at::Tensor tracker_;     // int32
};

}  // namespace detail
}  // namespace ddp::amp
