// Internal: how autograd's nodes are held, by std::shared_ptr up to LibTorch 2.12, by c10::intrusive_ptr since 2.13.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <utility>

namespace ddp::versions {

using NodePtr = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));

#if TORCH_VERSION_MINOR < 13
using WeakNodePtr = std::weak_ptr<torch::autograd::Node>;
#else
using WeakNodePtr = c10::weak_intrusive_ptr<torch::autograd::Node>;
#endif

/// A node of class `Node` that ends as autograd wants it: without recursion over the graph.
template <typename Node, typename... Arguments>
NodePtr make_node(Arguments&&... arguments) {
#if TORCH_VERSION_MINOR < 13
  return NodePtr(new Node(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode);
#else
  return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
#endif
}

}  // namespace ddp::versions
