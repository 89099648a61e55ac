#include "ddprun/amp/loss_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include <ddprun/comm/device_copy.h>

#include "amp/unscale.h"
#include "comm/core/graph_capture.h"

namespace ddp::amp::detail {
namespace {

constexpr double kFirstScale = 65536;
constexpr double kFactor = 2;
constexpr int64_t kWindow = 2000;

at::Tensor scalar(double value, at::ScalarType dtype, c10::Device device) {
  return at::full({}, value, at::TensorOptions(device).dtype(dtype));
}

}  // namespace

LossScaler::LossScaler(const LossScale& scale, std::optional<double> floor, double ceiling)
    : dynamic_(scale.is_dynamic()),
      floor_(floor),
      ceiling_(ceiling),
      value_(dynamic_ ? std::min(ceiling, kFirstScale) : scale.value()) {}

at::Tensor LossScaler::apply(const at::Tensor& loss) {
  const at::Tensor full = loss.to(at::kFloat);
  if (!dynamic_) return value_ == 1 ? full : full.mul(value_);
  if (!scale_.defined()) {
    scale_ = scalar(value_, at::kFloat, loss.device());
    tracker_ = scalar(static_cast<double>(unskipped_), at::kInt, loss.device());
  }
  return full.mul(to_device(scale_, loss.device()));
}

at::Tensor LossScaler::inverse(c10::Device device) const {
  if (scale_.defined()) return to_device(inverse_of(scale_), device);
  return scalar(1 / value_, at::kFloat, device);
}

void LossScaler::update(const at::Tensor& found_inf) {
  if (!dynamic_) {
    ++unskipped_;  // as apex counts it
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor found = to_device(found_inf, scale_.device());
  at::_amp_update_scale_(scale_, tracker_, found, kFactor, 1 / kFactor, kWindow);
  scale_.clamp_max_(ceiling_);
  if (floor_) scale_.copy_(at::where(found.ne(0), scale_.clamp_min(*floor_), scale_));  // only an overflow meets it
}

LossScalerState LossScaler::state() const {
  if (!scale_.defined()) return {.loss_scale = value_, .unskipped = unskipped_};
  ddp::detail::refuse_capture("amp: the loss scale's state", "the host reads it. Read it between replays");
  return {.loss_scale = scale_.item<double>(), .unskipped = tracker_.item<int64_t>()};
}

void LossScaler::load(const LossScalerState& state) {
  value_ = state.loss_scale;
  unskipped_ = state.unskipped;
  if (!scale_.defined()) return;
  scale_.fill_(state.loss_scale);
  tracker_.fill_(state.unskipped);
}

}  // namespace ddp::amp::detail
