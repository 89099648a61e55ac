#include "comm/reducer/backward_classifier.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace ddp::detail {
namespace {

using torch::autograd::Node;
using Graph = std::unordered_set<Node*>;

const Graph& current_graph() {
  static const Graph kEmpty;
  const Graph* graph = torch::autograd::get_current_graph_task_nodes_in_graph();
  return graph == nullptr ? kEmpty : *graph;
}

// Whether the backward goes through `node`. The root of a backward is not among autograd's nodes of that backward, but
// all nodes that follow it are.
bool runs_node(const Graph& graph, Node* node) {
  if (graph.contains(node)) return true;
  const auto& edges = node->next_edges();
  return std::ranges::any_of(edges, [](const auto& edge) { return edge.function.get() != nullptr; }) &&
         std::ranges::all_of(edges, [&](const auto& edge) {
           return edge.function.get() == nullptr || graph.contains(edge.function.get());
         });
}

// Whether it goes through a node that follows `node`, as that of a gradient penalty may. Those of leaves belong to
// every forward.
bool runs_successor(const Graph& graph, Node* node) {
  return std::ranges::any_of(node->next_edges(), [&](const auto& edge) {
    Node* next = edge.function.get();
    return next != nullptr && !next->next_edges().empty() && graph.contains(next);
  });
}

// Of the backward that runs in this thread; autograd::grad() accumulates into nothing.
bool accumulates_into(const std::vector<at::Tensor>& parameters) {
  const auto* filter = torch::autograd::get_current_graph_task_exec_info();
  if (filter == nullptr || filter->empty()) return true;
  return std::ranges::any_of(parameters, [&](const at::Tensor& parameter) {
    const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
    const auto found = node ? filter->find(node.get()) : filter->end();
    return found != filter->end() && found->second.needed_;
  });
}

class ThrowInBackward final : public torch::autograd::FunctionPreHook {
 public:
  ThrowInBackward(std::vector<at::Tensor> parameters, std::string message)
      : parameters_(std::move(parameters)), message_(std::move(message)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (accumulates_into(parameters_)) throw std::logic_error(message_);
    return gradients;
  }

 private:
  const std::vector<at::Tensor> parameters_;
  const std::string message_;
};

}  // namespace

void BackwardClassifier::add_forward(bool reduces, const std::vector<at::Tensor>& outputs, bool known) {
  if (reduces) {
    if (!armed_) {
      outstanding_ = 0;
      for (ForwardRecord& forward : forwards_) forward.finished = true;
    }
    armed_ = true;
    ++outstanding_;
  }
  if (forwards_.size() >= drop_at_) drop_expired();
  has_local_ = has_local_ || !reduces;
  ForwardRecord& forward = forwards_.emplace_back(ForwardRecord{.reduces = reduces, .known = known});
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    if (const auto& node = output.grad_fn()) {
      forward.outputs.emplace_back(node);
    } else {
      forward.known = false;  // a leaf, such as a parameter: its node belongs to every forward
    }
  }
}

// Those of which a backward may still come are those whose outputs are alive. The last one shows what Python would do.
void BackwardClassifier::drop_expired() {
  const auto is_over = [](const ForwardRecord& forward) {
    return std::ranges::all_of(forward.outputs, [](const auto& output) { return output.expired(); });
  };
  forwards_.erase(std::remove_if(forwards_.begin(), forwards_.end() - 1, is_over), forwards_.end() - 1);
  drop_at_ = std::max<size_t>(8, 2 * forwards_.size());
  has_local_ = std::ranges::any_of(forwards_, [](const ForwardRecord& forward) { return !forward.reduces; });
}

template <typename Test>
bool BackwardClassifier::any_output(const ForwardRecord& forward, Test test) {
  return std::ranges::any_of(forward.outputs, [&](const auto& output) {
    const auto node = output.lock();
    return node && test(node.get());
  });
}

template <typename Test>
bool BackwardClassifier::any_output(bool reduces, Test test) const {
  return std::ranges::any_of(
      forwards_, [&](const ForwardRecord& forward) { return forward.reduces == reduces && any_output(forward, test); });
}

bool BackwardClassifier::last_is_local_and_unknown() const {
  return !forwards_.empty() && !forwards_.back().reduces && !forwards_.back().known;
}

bool BackwardClassifier::is_of_local_forwards_only() const {
  const Graph& graph = current_graph();
  const auto through = [&](Node* node) { return runs_node(graph, node); };
  return any_output(/*reduces=*/false, through) && !any_output(/*reduces=*/true, through);
}

BackwardKind BackwardClassifier::classify(bool sync_enabled) const {
  if (armed_) {
    // Python reduces the backward of a forward under no_sync() if another forward waits for its own, say one whose
    // output was dropped.
    const bool is_local = has_local_ && (is_of_local_forwards_only() || (!sync_enabled && last_is_local_and_unknown()));
    return is_local ? BackwardKind::kLocal : BackwardKind::kReduce;
  }
  if (!sync_enabled) return BackwardKind::kLocal;
  const Graph& graph = current_graph();
  const auto through = [&](Node* node) { return runs_node(graph, node); };
  if (any_output(/*reduces=*/true, through)) return BackwardKind::kReduceAgain;
  if (any_output(/*reduces=*/false, through) || last_is_local_and_unknown()) return BackwardKind::kLocal;
  // Such as a gradient penalty, whose graph need not have the output itself.
  const auto after = [&](Node* node) { return runs_successor(graph, node); };
  if (outstanding_ > 0 || any_output(/*reduces=*/true, after)) return BackwardKind::kReduceAgain;
  return any_output(/*reduces=*/false, after) ? BackwardKind::kLocal : BackwardKind::kWithoutForward;
}

void BackwardClassifier::finish_reduction() {
  armed_ = false;
  if (outstanding_ > 1) {
    const Graph& graph = current_graph();
    int64_t finished = 0;
    for (ForwardRecord& forward : forwards_) {
      if (!forward.reduces || forward.finished) continue;
      if (!any_output(forward, [&](Node* node) { return runs_node(graph, node); })) continue;
      forward.finished = true;
      ++finished;
    }
    outstanding_ -= std::clamp<int64_t>(finished, 1, outstanding_);
  } else {
    outstanding_ = 0;
    for (ForwardRecord& forward : forwards_) forward.finished = true;
  }
}

void BackwardClassifier::refuse_backwards(const std::vector<at::Tensor>& parameters, const std::string& message) const {
  for (const ForwardRecord& forward : forwards_) {
    if (!forward.reduces) continue;
    for (const auto& output : forward.outputs) {
      if (const auto node = output.lock()) node->add_pre_hook(std::make_unique<ThrowInBackward>(parameters, message));
    }
  }
}

bool BackwardClassifier::uses_all_outputs() const {
  const Graph& graph = current_graph();
  return std::ranges::all_of(forwards_, [&](const ForwardRecord& forward) {
    if (!forward.reduces || forward.finished) return true;
    return forward.known && std::ranges::all_of(forward.outputs, [&](const auto& output) {
             const auto node = output.lock();
             return !node || runs_node(graph, node.get());
           });
  });
}

}  // namespace ddp::detail
