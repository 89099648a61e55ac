// Adaptive summation of gradients. Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp::horovod {

/// The two vectors' adaptive sum, (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b: their sum when they are orthogonal, their
/// mean when they are equal. Same shape and dtype, floating-point; products are summed in double precision. A zero
/// vector leaves the other one as it is.
at::Tensor adasum(const at::Tensor& a, const at::Tensor& b);

/// Replaces each of `tensors` on every rank by the adaptive sum of all ranks' values: pairs of ranks first, then pairs
/// of pairs, each tensor by itself (a layer of the model). Every rank gets the same bits. All ranks must call it with
/// the same list; costs log2(size) exchanges of the whole list. Throws std::invalid_argument when the number of ranks
/// is not a power of two or a tensor is not floating-point, std::runtime_error when a peer fails.
void adasum_allreduce(const std::vector<at::Tensor>& tensors, const GroupHandle& group);

}  // namespace ddp::horovod
