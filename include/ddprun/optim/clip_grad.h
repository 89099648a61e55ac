// Gradient clipping that stays on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddp::optim {

/// Settings of clip_grad_norm_() and get_total_norm(), all optional.
struct ClipGradNormOptions {
  double norm_type = 2;  ///< any p; infinity for the largest absolute value
  /// Throws instead of clipping by a norm that is inf or NaN. The host then waits for the device.
  bool error_if_nonfinite = false;
  /// The factor by which the gradients are still multiplied (a gradient scaler's scale, if unscale_() was not called):
  /// a float32 tensor of one element. `max_norm` and the result then refer to the unscaled gradients, and the gradients
  /// stay scaled. Norms of 16-bit gradients, which overflow easily when scaled, are then taken in float32; without a
  /// scale they are of the gradients' dtype, as Python's.
  at::Tensor grad_scale{};
};

/// Scales the gradients of `parameters` down so that their norm, taken over all of them as one vector, is at most
/// `max_norm`, counting each parameter once even if it is listed twice (as by parameters() of a model with tied
/// weights). Returns the norm before the scaling, as a tensor without dimensions on the first gradient's device (0 on
/// the CPU if there are no gradients). The host does not wait for the device. If the gradients are reduced, every rank
/// gets the same result. Throws std::runtime_error with error_if_nonfinite for a norm that is not finite,
/// std::invalid_argument for sparse gradients, a norm type that is NaN or a scale that is not a float32 tensor of one
/// element. The bits are those of torch.nn.utils.clip_grad_norm_. One difference: for an infinite norm PyTorch rejects
/// gradients without elements; here they are ignored.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                           const ClipGradNormOptions& options = {});

/// The norm of `tensors`, taken over all of them as one vector: a tensor of no dimensions on the first one's device (0
/// on the CPU for an empty list). Undefined tensors, such as the gradient of a parameter that has none, count
/// nothing, and a tensor that is listed twice counts once, so that the gradients of parameters() may be given as they
/// are. Changes nothing, and throws as clip_grad_norm_(). Reference: torch.nn.utils.get_total_norm, which counts
/// repetitions.
at::Tensor get_total_norm(const std::vector<at::Tensor>& tensors, const ClipGradNormOptions& options = {});

/// The second half of clip_grad_norm_(): multiplies the gradients of `parameters`, each once, by
/// `max_norm / total_norm` where that is below 1. `total_norm` is a tensor of one real number on any device, such as
/// the norm over the parameters of several models or ranks; it must be equal on all ranks. Throws std::invalid_argument
/// for sparse gradients, for another `total_norm` and for a `max_norm` that is not a number, and changes nothing then.
/// Reference: torch.nn.utils.clip_grads_with_norm_.
void clip_grads_with_norm_(const std::vector<at::Tensor>& parameters, double max_norm, const at::Tensor& total_norm);

/// Limits each element of the gradients of `parameters` to [-clip_value, clip_value]; NaN remains NaN. Throws
/// std::invalid_argument for sparse gradients. Reference: torch.nn.utils.clip_grad_value_, which fails where no
/// parameter has a gradient.
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace ddp::optim
