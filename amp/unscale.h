// What GradScaler and amp share: dividing gradients by a scale and noting on the device whether any is infinite or NaN.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp::amp::detail {

/// 1 / `scale` in float32, through float64, since a float32 division may be imprecise on GPUs.
at::Tensor inverse_of(const at::Tensor& scale);

/// Copies of one scalar tensor, one per device, made when first asked for. The host waits for one on the CPU only.
class PerDevice {
 public:
  explicit PerDevice(at::Tensor original) : original_(std::move(original)) {}
  at::Tensor& on(c10::Device device);
  /// Those that were asked for.
  std::vector<at::Tensor> copies() const;

 private:
  at::Tensor original_;
  std::vector<std::pair<c10::Device, at::Tensor>> copies_;
};

/// Multiplies dense floating-point `gradients`, on any devices and of any dtypes, in place by `inverse_scale` (float32,
/// one element). Returns one float32 element per device: 1 when a gradient there is infinite or NaN, else 0; nothing
/// without gradients. The host waits for a device only when some gradients lie on the CPU and others do not.
std::vector<at::Tensor> unscale(const std::vector<at::Tensor>& gradients, const at::Tensor& inverse_scale);

/// Their sum on `device`, or zero. The host waits only where `device` is the CPU and some are not.
at::Tensor combine(const std::vector<at::Tensor>& found_infs, c10::Device device);

/// Makes every rank's `found_infs` say what any rank found, with one all-reduce of one element on `device`; a rank
/// without gradients gets an element too. Every rank of `group` must call it.
void agree(std::vector<at::Tensor>& found_infs, c10::Device device, const GroupHandle& group);

}  // namespace ddp::amp::detail
