// Functions that GradScaler and amp share: they divide gradients by a scale, and record on the device whether any is
// infinite or NaN.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp::amp::detail {

/// Returns 1 / `scale` in float32. It is computed in float64, because a float32 division may be imprecise on GPUs.
at::Tensor inverse_of(const at::Tensor& scale);

/// Copies of one scalar tensor, one per device, each made at its first request. The host waits only for a copy on the
/// CPU.
class PerDevice {
 public:
  explicit PerDevice(at::Tensor original) : original_(std::move(original)) {}
  at::Tensor& on(c10::Device device);
  /// Returns the copies made so far.
  std::vector<at::Tensor> copies() const;

 private:
  at::Tensor original_;
  std::vector<std::pair<c10::Device, at::Tensor>> copies_;
};

/// Multiplies dense floating-point `gradients`, on any devices and of any dtypes, in place by `inverse_scale` (one
/// float32 element). Returns one float32 element per device: 1 if a gradient there is infinite or NaN, otherwise 0. The
/// result is empty if there are no gradients. The host waits for a device only if some gradients are on the CPU and
/// others are not.
std::vector<at::Tensor> unscale(const std::vector<at::Tensor>& gradients, const at::Tensor& inverse_scale);

/// Returns the sum of `found_infs` on `device`, or zero if `found_infs` is empty. The host waits only if `device` is
/// the CPU and some elements are on another device.
at::Tensor combine(const std::vector<at::Tensor>& found_infs, c10::Device device);

/// Combines the `found_infs` of all ranks, so that on every rank they show whether any rank has found an overflow. It
/// needs one all-reduce of one element on `device`. A rank without gradients also gets an element. Every rank of
/// `group` must call it.
void agree(std::vector<at::Tensor>& found_infs, c10::Device device, const GroupHandle& group);

}  // namespace ddp::amp::detail
