// Gradient clipping by the norm over the shards of all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp::fsdp {

/// Scales the gradients of `shards` down so that the norm of order `norm_type` over the shards of all ranks of `group`
/// is at most `max_norm`; returns the norm before, a tensor of no dimensions, equal on all ranks. All ranks of `group`
/// must call it. Norms travel on `device`, where the gradients need not be. Reference: torch.nn.utils.clip_grad_norm_
/// of DTensors, bit by bit: the norm of each whole parameter is taken first.
at::Tensor clip_shards(const std::vector<at::Tensor>& shards, double max_norm, double norm_type,
                       const GroupHandle& group, c10::Device device);

}  // namespace ddp::fsdp
