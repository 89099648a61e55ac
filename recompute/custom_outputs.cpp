#include "recompute/custom_outputs.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <string_view>
#include <typeinfo>

namespace ddp::recompute {
namespace {

// The nodes of custom functions are instances of a template and have no common base class of their own.
bool is_custom(const torch::autograd::Node& node) {
  return std::string_view(typeid(node).name()).find("7CppNodeI") != std::string_view::npos;
}

}  // namespace

CustomOutputs::CustomOutputs()
    : thread_(at::RecordFunction::currentThreadId()), first_node_(at::sequence_number::peek()) {}

void CustomOutputs::note(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  if (!node || node->thread_id() != thread_ || node->sequence_nr() < first_node_) return;
  if (is_custom(*node)) outputs_.emplace_back(tensor.getIntrusivePtr());
}

void CustomOutputs::release() noexcept {
  for (const auto& output : outputs_) {
    const auto alive = output.lock();
    if (!alive) continue;
    auto* meta = torch::autograd::impl::get_autograd_meta(at::Tensor(alive));
    if (meta != nullptr) meta->grad_fn_ = nullptr;
  }
  outputs_.clear();
}

}  // namespace ddp::recompute
