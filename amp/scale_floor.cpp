#include "amp/scale_floor.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>

#include "base/rank_prefix.h"
#include "comm/core/graph_capture.h"

namespace ddp::amp::detail {
namespace {

constexpr int kCallsPerCopy = 16;  // each copy copies two small tensors

at::Tensor pinned(at::ScalarType type) {
  return at::empty({}, at::TensorOptions(type).pinned_memory(true));
}

}  // namespace

ScaleFloor::ScaleFloor(double value, std::string what) : value_(value), what_(std::move(what)) {}

void ScaleFloor::begin_at(double scale) {
  starts_above_floor_ = scale > value_;
  arrived_.reset();  // a copy that is in progress has an older value
}

void ScaleFloor::begin_at_unknown() {
  begin_at(value_);
}

void ScaleFloor::warn_of_raised(double loaded) const {
  TORCH_WARN(what_, " of the loaded state is ", number_text(loaded), ", below the floor of ", number_text(value_),
             ", and is raised to it");
}

void ScaleFloor::check(const at::Tensor& scale, const at::Tensor& tracker) {
  if (has_warned_) return;
  if (scale.is_cpu()) {
    warn_if_at_floor(*scale.const_data_ptr<float>(), *tracker.const_data_ptr<int32_t>() == 0);
  } else if (ddp::detail::is_capturing()) {
    return;  // during a capture, operators do not run
  } else if (arrived_) {
    if (!arrived_->query()) return;
    arrived_.reset();
    warn_if_at_floor(*scale_.const_data_ptr<float>(), *tracker_.const_data_ptr<int32_t>() == 0);
  } else if (++calls_ % kCallsPerCopy == 0) {
    begin_copy(scale, tracker);
  }
}

void ScaleFloor::check(double scale) {
  warn_if_at_floor(scale, /*after_overflow=*/false);
}

void ScaleFloor::begin_copy(const at::Tensor& scale, const at::Tensor& tracker) {
  if (!scale_.defined()) {
    scale_ = pinned(at::kFloat);
    tracker_ = pinned(at::kInt);
  }
  scale_.copy_(scale, /*non_blocking=*/true);
  tracker_.copy_(tracker, /*non_blocking=*/true);
  const c10::Device device = scale.device();
  arrived_.emplace(device.type());
  arrived_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

// A scale that was at the floor from the beginning causes no warning before an overflow. NaN counts as below the floor.
void ScaleFloor::warn_if_at_floor(double scale, bool after_overflow) {
  starts_above_floor_ = starts_above_floor_ || scale > value_;
  if (has_warned_ || scale > value_ || !(starts_above_floor_ || after_overflow)) return;
  has_warned_ = true;
  TORCH_WARN(
      what_, " has been reduced to its floor of ", number_text(value_),
      ", since gradients were infinite or NaN. Steps with such gradients are still skipped, with the same scale. "
      "If they continue, look for NaN or infinity in the data, a learning rate that is too high or a division by 0; "
      "check_gradients of DistributedDataParallel names the parameter");
}

}  // namespace ddp::amp::detail
