// Copies between devices that make the host wait only where it has to.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace ddp {

/// Whether the host may continue before a copy to `target` has ended: not when the copy is in the CPU's memory, which
/// the host can read at once and then reads what was there before. A device's own work waits for the copy in order.
inline bool may_return_before_copied(c10::Device target) {
  return !target.is_cpu();
}

/// `tensor` on `device`: itself when it is there, else a copy, in the autograd graph as Tensor::to().
inline at::Tensor to_device(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(device, may_return_before_copied(device));
}

/// A copy of `tensor` on `device`, also when it is there.
inline at::Tensor copy_on_device(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(device, tensor.scalar_type(), may_return_before_copied(device), /*copy=*/true);
}

/// Copies the values of `source`, on any device, to `target`.
inline void copy_into(const at::Tensor& target, const at::Tensor& source) {
  target.copy_(source, may_return_before_copied(target.device()));
}

}  // namespace ddp
