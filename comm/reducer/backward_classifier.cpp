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
// all nodes that follow it are. Leaves follow many nodes: a root that only they follow has no other nodes.
bool runs_node(const Graph& graph, Node* node) {
  if (graph.contains(node)) return true;
  Graph next;
  for (const auto& edge : node->next_edges()) {
    if (edge.function.get() != nullptr) next.insert(edge.function.get());
  }
  const auto is_leaf = [](Node* each) { return each->next_edges().empty(); };
  return !next.empty() && std::ranges::all_of(next, [&](Node* each) { return graph.contains(each); }) &&
         (next.size() == graph.size() || !std::ranges::all_of(next, is_leaf));
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
  has_local_ = has_local_ || !reduces;
  if (forwards_.size() >= drop_threshold_) drop_expired();
  ++last_;
  if (reduces) last_reducing_ = last_;
  spans_.end(last_, reduces);
  ForwardRecord& forward = forwards_.emplace_back(ForwardRecord{.number = last_, .reduces = reduces, .known = known});
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
  drop_threshold_ = std::max<size_t>(8, 2 * forwards_.size());
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

BackwardClassifier::Origin BackwardClassifier::origin(bool sync_enabled) const {
  const Graph& graph = current_graph();
  const auto is_in = [&](Node* node) { return graph.contains(node); };
  if (any_output(/*reduces=*/true, is_in)) return Origin::kReducing;
  bool is_local = any_output(/*reduces=*/false, is_in);
  for (const Node* node : graph) {
    const ForwardSpans::Span* span = spans_.find(*node);
    if (span == nullptr) continue;
    if (span->reduces) return Origin::kReducing;
    is_local = true;
  }
  if (is_local) return Origin::kLocal;
  // Nodes of the leaves alone: the root may be an output, and that of several forwards by what follows it.
  const auto through = [&](Node* node) { return runs_node(graph, node); };
  const bool reduces = any_output(/*reduces=*/true, through);
  is_local = any_output(/*reduces=*/false, through);
  if (reduces && is_local) return sync_enabled ? Origin::kReducing : Origin::kLocal;
  if (reduces) return Origin::kReducing;
  return is_local ? Origin::kLocal : Origin::kUnknown;
}

// A backward under no_sync() that belongs to no known forward is to stay local, also while another forward waits: that
// of net(x), of a penalty on the weights, or of a gradient penalty whose graph has nothing that the forward has made.
BackwardKind BackwardClassifier::classify(bool sync_enabled) const {
  if (armed_ && sync_enabled && !has_local_) return BackwardKind::kReduce;
  switch (origin(sync_enabled)) {
    case Origin::kReducing:
      return armed_ ? BackwardKind::kReduce : BackwardKind::kReduceAgain;
    case Origin::kLocal:
      return BackwardKind::kLocal;
    case Origin::kUnknown:
      break;
  }
  if (!sync_enabled) return BackwardKind::kLocal;
  if (armed_) return BackwardKind::kReduce;
  if (last_is_local_and_unknown()) return BackwardKind::kLocal;
  // Such as a gradient penalty of a forward in several threads, whose graph need not have the output itself.
  const Graph& graph = current_graph();
  const auto after = [&](Node* node) { return runs_successor(graph, node); };
  if (outstanding_ > 0 || any_output(/*reduces=*/true, after)) return BackwardKind::kReduceAgain;
  return any_output(/*reduces=*/false, after) ? BackwardKind::kLocal : BackwardKind::kWithoutForward;
}

std::unordered_set<int64_t> BackwardClassifier::forwards_of_backward() const {
  const Graph& graph = current_graph();
  std::unordered_set<int64_t> numbers;
  int64_t latest = 0;
  for (const Node* node : graph) {
    const ForwardSpans::Span* span = spans_.find(*node);
    if (span != nullptr && std::exchange(latest, span->forward) != span->forward) numbers.insert(span->forward);
  }
  const auto add = [&](auto test) {
    for (const ForwardRecord& forward : forwards_) {
      if (any_output(forward, test)) numbers.insert(forward.number);
    }
  };
  add([&](Node* node) { return graph.contains(node); });
  if (numbers.empty()) add([&](Node* node) { return runs_node(graph, node); });
  return numbers;
}

bool BackwardClassifier::is_of_last_reducing_only() const {
  const std::unordered_set<int64_t> numbers = forwards_of_backward();
  return numbers.size() == 1 && numbers.contains(last_reducing_);
}

void BackwardClassifier::finish_reduction() {
  armed_ = false;
  if (outstanding_ > 1) {
    const std::unordered_set<int64_t> used = forwards_of_backward();
    int64_t finished = 0;
    for (ForwardRecord& forward : forwards_) {
      if (!forward.reduces || forward.finished || !used.contains(forward.number)) continue;
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
