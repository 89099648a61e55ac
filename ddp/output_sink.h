// Passes a forward's outputs through a node of the graph, so that the begin of backward is seen and so that outputs
// which take no part in the loss give undefined gradients. Reference: _DDPSink in torch.nn.parallel.distributed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace ddp {

/// Copies of `outputs` (each with a gradient function) after one common node. `on_backward` is called, in the backward
/// thread, before gradients flow on into the model.
std::vector<at::Tensor> pass_through_sink(const std::vector<at::Tensor>& outputs, std::function<void()> on_backward);

}  // namespace ddp
