// Backwards that a region calls in its function (autograd::grad(), backward()), and results of keep(), which have
// another graph in the second run than in the first.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

namespace ddp::recompute {

/// Whether a backward from `roots` to `targets` (to all leaves if `targets` is empty) goes through the graph that made
/// one of `results`: not where it ends at a result.
bool goes_beyond(const torch::autograd::edge_list& roots, const torch::autograd::edge_list& targets,
                 const std::vector<at::Tensor>& results);

/// Throws the RecomputeError about such a backward.
[[noreturn]] void refuse_backward_through_kept();

}  // namespace ddp::recompute
