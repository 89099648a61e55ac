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
  /// A float32 tensor of one element: the factor by which the gradients are currently multiplied (a gradient scaler's
  /// scale, if unscale_() was not called). `max_norm` and the result then refer to the unscaled gradients, and the
  /// gradients stay scaled. The norms of 16-bit gradients, which easily overflow when scaled, are then computed in
  /// float32. Without a scale, norms have the dtype of the gradients, as in Python.
  at::Tensor grad_scale{};
};

/// Scales the gradients of `parameters` down so that their norm is at most `max_norm`. The norm is that of all
/// gradients as one vector. Each parameter counts once even if it is listed twice (as by parameters() of a model with
/// tied weights). Returns the norm before the scaling, as a tensor without dimensions on the first gradient's device (0
/// on the CPU if there are no gradients). The host does not wait for the device. If the gradients are reduced, every
/// rank gets the same result. Throws std::runtime_error, with error_if_nonfinite, if the norm is not finite;
/// std::invalid_argument for sparse gradients, a norm type that is NaN, or a scale that is not a float32 tensor of one
/// element. The results have the same bits as those of torch.nn.utils.clip_grad_norm_, with one difference: for an
/// infinite norm, PyTorch rejects gradients without elements, and this function ignores them.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                           const ClipGradNormOptions& options = {});

/// Returns the norm of all `tensors` as one vector. The result is a tensor without dimensions on the first tensor's
/// device (0 on the CPU for an empty list). Undefined tensors, such as the gradient of a parameter that has none, are
/// ignored. A tensor that is listed twice counts once, so the gradients of all parameters() can be passed. Changes
/// nothing, and throws as clip_grad_norm_() does. Reference: torch.nn.utils.get_total_norm, which counts repetitions.
at::Tensor get_total_norm(const std::vector<at::Tensor>& tensors, const ClipGradNormOptions& options = {});

/// The second half of clip_grad_norm_(): multiplies the gradients of `parameters`, each once, by `max_norm /
/// total_norm` if that is below 1. `total_norm` is a tensor of one real number on any device, such as the norm over the
/// parameters of several models or ranks; it must be equal on all ranks. Throws std::invalid_argument, and changes
/// nothing, for sparse gradients, for any other `total_norm`, and for a `max_norm` that is NaN. Reference:
/// torch.nn.utils.clip_grads_with_norm_.
void clip_grads_with_norm_(const std::vector<at::Tensor>& parameters, double max_norm, const at::Tensor& total_norm);

/// Limits each element of the gradients of `parameters` to [-clip_value, clip_value]; NaN remains NaN. Throws
/// std::invalid_argument for sparse gradients. Reference: torch.nn.utils.clip_grad_value_, which fails if no parameter
/// has a gradient.
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace ddp::optim
