// Runs its layer again in backward, as checkpointing does in a re-entrant way.
#pragma once

#include <torch/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace ddp::test {

/// `layer` must outlive the backward, in which its parameters get gradients each time it was applied.
struct Again : torch::autograd::Function<Again> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               torch::nn::LinearImpl* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    return layer->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const torch::AutoGradMode on(true);
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({layer->forward(x)}, {gradients[0]});
    return {x.grad(), torch::Tensor()};
  }
};

}  // namespace ddp::test
