// Internal: batch normalisation over the batches of all ranks, with autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "syncbn/batch_norm_ops.h"
#include "syncbn/sync_layer.h"

namespace ddp::detail {

/// Normalises `input` (N, C, …) of this rank with mean and variance of all ranks' inputs, then scales by `weight` and
/// adds `bias` (of shape (C), or undefined), and updates the running statistics. Every rank must call it, with equal C
/// and dtype; N and the other dimensions may differ or be 0. One all-gather, and one all-reduce in backward; on NCCL
/// neither waits for the device. Not differentiable twice. Throws std::invalid_argument for an input that does not fit,
/// on CPU std::runtime_error on the other ranks then, and what the collectives throw.
at::Tensor sync_batch_norm_function(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                    const RunningStatistics& running, double eps,
                                    const std::shared_ptr<SyncLayer>& layer);

}  // namespace ddp::detail
