#include "amp/loss_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include <ddprun/detail/comm/device_copy.h>

#include "amp/scale_floor.h"
#include "amp/unscale.h"
#include "comm/core/graph_capture.h"

namespace ddp::amp::detail {
namespace {

constexpr double kInitialScale = 65536;
constexpr double kFactor = 2;
constexpr int64_t kWindow = 2000;
constexpr double kDefaultFloor = 0x1p-24;  // apex has no default floor

at::Tensor scalar(double value, at::ScalarType dtype, c10::Device device) {
  return at::full({}, value, at::TensorOptions(device).dtype(dtype));
}

}  // namespace

LossScaler::LossScaler(const LossScale& scale, std::optional<double> floor, double ceiling, const std::string& rank)
    : dynamic_(scale.is_dynamic()),
      has_default_floor_(!floor),
      ceiling_(ceiling),
      floor_(
          std::make_shared<ScaleFloor>(floor.value_or(std::min(kDefaultFloor, ceiling)), rank + "amp: a loss scale")),
      value_(dynamic_ ? std::min(ceiling, kInitialScale) : scale.value()) {
  floor_->begin_at(value_);
}

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
    ++unskipped_;  // as in apex
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor found = to_device(found_inf, scale_.device());
  at::_amp_update_scale_(scale_, tracker_, found, kFactor, 1 / kFactor, kWindow);
  scale_.clamp_max_(ceiling_);
  if (has_default_floor_) {
    scale_.clamp_min_(floor_->value());
  } else {  // as in apex, the floor applies only after an overflow
    scale_.copy_(at::where(found.ne(0), scale_.clamp_min(floor_->value()), scale_));
  }
  floor_->check(scale_, tracker_);
}

LossScalerState LossScaler::state() const {
  if (!scale_.defined()) return {.loss_scale = value_, .unskipped = unskipped_};
  ddp::detail::refuse_capture("amp: the loss scale's state", "the host reads it. Read it between replays");
  const LossScalerState state{.loss_scale = scale_.item<double>(), .unskipped = tracker_.item<int64_t>()};
  floor_->check(state.loss_scale);
  return state;
}

void LossScaler::load(const LossScalerState& state) {
  value_ = std::max(state.loss_scale, dynamic_ && has_default_floor_ ? floor_->value() : kMinScale);
  unskipped_ = state.unskipped;
  if (state.loss_scale < value_) floor_->warn_of_raised(state.loss_scale);
  floor_->begin_at(value_);
  if (!scale_.defined()) return;
  scale_.fill_(value_);
  tracker_.fill_(state.unskipped);
}

}  // namespace ddp::amp::detail
