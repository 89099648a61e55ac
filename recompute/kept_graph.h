// Checks the backwards that a region calls in its function (autograd::grad(), backward()). The graph of a result of
// keep() is different in the second run, so such a backward must not use it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

namespace ddp::recompute {

/// Whether a backward from `roots` to `targets` (to all leaves if `targets` is empty) goes through the graph that made
/// one of `results`. A backward that ends at a result does not.
bool goes_beyond(const torch::autograd::edge_list& roots, const torch::autograd::edge_list& targets,
                 const std::vector<at::Tensor>& results);

/// Throws a RecomputeError that explains this.
[[noreturn]] void refuse_backward_through_kept();

}  // namespace ddp::recompute
