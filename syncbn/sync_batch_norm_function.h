// Internal: batch normalisation over the batches of all ranks, with autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "syncbn/batch_norm_ops.h"
#include "syncbn/sync_layer.h"

namespace ddp::detail {

/// Normalises this rank's `input` (N, C, …) with the mean and variance of all ranks' inputs, multiplies it by `weight`
/// and adds `bias` (of shape (C), or undefined), and updates the running statistics. Every rank must call it, with
/// equal C and dtype; N and the other dimensions may differ or be 0. It needs one all-gather, and one all-reduce in the
/// backward. With NCCL, the host does not wait for the device in either. It is not twice differentiable. Throws
/// std::invalid_argument for an input that does not fit; on the CPU, the other ranks then throw std::runtime_error.
/// Also throws what the collectives throw.
at::Tensor sync_batch_norm_function(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                    const RunningStatistics& running, double eps,
                                    const std::shared_ptr<SyncLayer>& layer);

}  // namespace ddp::detail
