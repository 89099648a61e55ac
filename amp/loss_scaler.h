// One loss's scale, kept on the loss's device. Reference: apex.amp.scaler.LossScaler.
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

/// Starts at 65536 (or the ceiling), doubles after 2,000 good steps up to the ceiling, halves on overflow down to the
/// floor, where it warns once; or is static.
class LossScaler {
 public:
  /// Without a `floor` it is the smallest float16 above 0, or the ceiling if that is less. `rank` begins the warning.
  LossScaler(const LossScale& scale, std::optional<double> floor, double ceiling, const std::string& rank = "");

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
  bool has_default_floor_;
  double ceiling_;
  std::shared_ptr<ScaleFloor> floor_;
  double value_;           // of a static scale, and the first of a dynamic one
  int64_t unskipped_ = 0;  // likewise
  at::Tensor scale_;       // float32; undefined before the first loss
  at::Tensor tracker_;     // int32
};

}  // namespace detail
}  // namespace ddp::amp
