#include "recompute/kept_graph.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "base/rank_prefix.h"
#include "ddprun/detail/recompute/region.h"

namespace ddp::recompute {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using Nodes = std::unordered_set<const torch::autograd::Node*>;

// Returns the nodes that `edges` reach, directly or through other nodes.
Nodes reached_by(const edge_list& edges) {
  Nodes reached;
  std::vector<const torch::autograd::Node*> open;
  const auto visit = [&](const Edge& edge) {
    if (edge.is_valid() && reached.insert(edge.function.get()).second) open.push_back(edge.function.get());
  };
  std::ranges::for_each(edges, visit);
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    std::ranges::for_each(node->next_edges(), visit);
  }
  return reached;
}

}  // namespace

bool goes_beyond(const edge_list& roots, const edge_list& targets, const std::vector<at::Tensor>& results) {
  if (results.empty()) return false;
  const Nodes from_roots = reached_by(roots);
  edge_list beyond;
  for (const at::Tensor& result : results) {
    const Edge edge = torch::autograd::impl::gradient_edge(result);
    if (!from_roots.contains(edge.function.get())) continue;
    if (targets.empty()) return true;
    // If keep() returned a leaf, it is a different tensor in the second run.
    if (!result.grad_fn()) beyond.push_back(edge);
    const edge_list& next = edge.function->next_edges();
    beyond.insert(beyond.end(), next.begin(), next.end());
  }
  const Nodes from_results = reached_by(beyond);
  return std::ranges::any_of(targets, [&](const Edge& target) { return from_results.contains(target.function.get()); });
}

void refuse_backward_through_kept() {
  throw RecomputeError(
      rank_prefix() +
      "keep(): the region runs a backward through a result of keep(), but the recomputation has this result without "
      "its autograd graph. Call autograd::grad() or backward() within keep()'s function, or compute "
      "this part without keep().");
}

}  // namespace ddp::recompute
