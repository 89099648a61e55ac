#include "ddprun/detail/recompute/region.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include "base/rank_prefix.h"
#include "comm/versions/autograd_node.h"
#include "ddprun/recompute/recompute.h"
#include "recompute/frame.h"
#include "recompute/kept_graph.h"
#include "recompute/saved_tensor_mode.h"

namespace ddp::detail {
namespace {

std::vector<int64_t> versions_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> versions;
  for (const at::Tensor& tensor : tensors) {
    versions.push_back(tensor.defined() && !tensor.is_inference() ? tensor._version() : 0);
  }
  return versions;
}

// Replaces, in a second run, the graph that made the results of a keep().
class GraphOfKept final : public torch::autograd::Node {
 public:
  explicit GraphOfKept(const std::vector<at::Tensor>& inputs) : Node(torch::autograd::collect_next_edges(inputs)) {}
  std::string name() const override { return "ddp::keep"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override {
    recompute::refuse_backward_through_kept();
  }
};

}  // namespace

Region::Region(const RecomputeOptions& options, std::vector<at::Tensor> inputs, Recompute recompute)
    : inputs_(std::move(inputs)) {
  recompute::install_engine();
  frame_ = std::make_shared<recompute::Frame>(options, inputs_, std::move(recompute));
}

Region::~Region() = default;

void Region::run(const std::function<void()>& function) {
  try {
    const auto before = versions_of(inputs_);
    frame_->run_first(function);
    const auto after = versions_of(inputs_);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (before[i] == after[i]) continue;
      throw std::runtime_error(rank_prefix() + "checkpoint(): the region changed its input tensor " +
                               std::to_string(i) +
                               " (counted from 0) in place, so that it cannot run again with the same values. Use the "
                               "operator that returns a new tensor, or begin the region after this operator.");
    }
  } catch (...) {
    frame_->abandon();
    throw;
  }
}

KeptResults::KeptResults() {
  recompute::SavedTensorMode* mode = recompute::current_mode();
  if (auto* first = dynamic_cast<recompute::FirstRun*>(mode)) {
    is_first_run_ = true;
    frame_ = &first->frame();
  } else if (auto* second = dynamic_cast<recompute::SecondRun*>(mode)) {
    is_second_run_ = true;
    frame_ = &second->frame();
    index_ = second->next_kept();
  }
}

KeptResults::~KeptResults() = default;

const std::any& KeptResults::structure() const {
  return frame_->kept(index_).structure;
}

void KeptResults::refuse_other_type() const {
  throw RecomputeError(rank_prefix() + "keep(): call " + std::to_string(index_) +
                       " (counted from 0) of the region has a result of another type in the recomputation than in the "
                       "forward. A region must call the same parts in both.");
}

std::vector<at::Tensor> KeptResults::tensors(const std::vector<at::Tensor>& inputs) const {
  const recompute::KeptResult& kept = frame_->kept(index_);
  const auto graph = versions::make_node<GraphOfKept>(inputs);
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < kept.tensors.size(); ++i) {
    const at::Tensor& tensor = kept.tensors[i];
    if (!tensor.defined()) {
      result.emplace_back();
      continue;
    }
    if (static_cast<uint32_t>(tensor._version()) != kept.versions[i]) {
      throw RecomputeError(rank_prefix() + "keep(): result " + std::to_string(i) +
                           " (counted from 0) was changed in place after keep() had returned it. Use the operator that "
                           "returns a new tensor.");
    }
    result.push_back(tensor.detach());
    if (kept.requires_grad[i]) torch::autograd::create_gradient_edge(result.back(), graph);
  }
  if (kept.random_states) kept.random_states->apply();
  return result;
}

void KeptResults::store(std::vector<at::Tensor> tensors, std::any structure) {
  recompute::KeptResult kept;
  kept.structure = std::move(structure);
  for (const at::Tensor& tensor : tensors) {
    kept.tensors.push_back(tensor.defined() ? tensor.detach() : at::Tensor());
    kept.requires_grad.push_back(tensor.defined() && tensor.requires_grad());
    kept.versions.push_back(tensor.defined() ? static_cast<uint32_t>(tensor._version()) : 0);
  }
  if (frame_->preserves_rng_state()) kept.random_states = recompute::RandomStates::current(frame_->devices());
  frame_->store_kept(std::move(kept));
  dynamic_cast<recompute::FirstRun&>(*recompute::current_mode()).add_kept(tensors);
}

KeptResults::PlainScope::PlainScope() : mode_(std::make_unique<recompute::PlainMode>()) {
  recompute::begin_mode(*mode_);
}

KeptResults::PlainScope::~PlainScope() {
  recompute::end_mode(*mode_);
}

}  // namespace ddp::detail

namespace ddp {

at::Tensor checkpoint_sequential(const torch::nn::Sequential& sequential, int64_t segments, at::Tensor input,
                                 const RecomputeOptions& options) {
  const auto size = static_cast<int64_t>(sequential->size());
  if (segments < 1 || segments > size) {
    throw std::invalid_argument(rank_prefix() + "checkpoint_sequential(): " + std::to_string(segments) +
                                " segments of a Sequential with " + std::to_string(size) + " modules; expected 1 to " +
                                std::to_string(size));
  }
  const int64_t length = size / segments;
  const auto run = [modules = sequential.ptr()](int64_t begin, int64_t end, at::Tensor x) {
    for (int64_t i = begin; i < end; ++i) x = (modules->begin() + i)->forward(x);
    return x;
  };
  int64_t begin = 0;
  for (int64_t segment = 0; segment + 1 < segments; ++segment, begin += length) {
    input = checkpoint(
        options, [run, begin, length](const at::Tensor& x) { return run(begin, begin + length, x); }, input);
  }
  return run(begin, size, input);
}

}  // namespace ddp
