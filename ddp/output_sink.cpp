#include "ddp/output_sink.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "comm/versions/autograd_node.h"

namespace ddp {
namespace {

// Passes gradients on unchanged, also undefined ones.
class Sink final : public torch::autograd::Node {
 public:
  Sink(torch::autograd::edge_list next_edges, std::function<void()> on_backward)
      : Node(std::move(next_edges)), on_backward_(std::move(on_backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    on_backward_();
    return std::move(gradients);
  }

 private:
  std::function<void()> on_backward_;
};

}  // namespace

std::vector<at::Tensor> pass_through_sink(const std::vector<at::Tensor>& outputs, std::function<void()> on_backward) {
  torch::autograd::edge_list edges;
  edges.reserve(outputs.size());
  for (const at::Tensor& output : outputs) edges.push_back(torch::autograd::impl::gradient_edge(output));
  const versions::NodePtr sink = versions::make_node<Sink>(std::move(edges), std::move(on_backward));
  std::vector<at::Tensor> copies;
  copies.reserve(outputs.size());
  for (const at::Tensor& output : outputs) {
    at::Tensor copy;
    {
      // As in Python: without a copy, autograd would refuse an in-place change of the output, since it would be a view.
      const at::NoGradGuard no_grad;
      copy = output.clone();
    }
    torch::autograd::set_history(copy, sink);
    copies.push_back(std::move(copy));
  }
  return copies;
}

}  // namespace ddp
