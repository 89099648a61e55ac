#include "optim/stacks.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace ddp::optim {
namespace {

// Excludes bfloat16: ATen computes the last elements of such a tensor differently from the others.
bool can_be_stacked(const FusedBatch& batch, size_t i) {
  constexpr int64_t kSmall = 4096;
  const auto fits = [](const at::Tensor& tensor) {
    const auto dtype = tensor.scalar_type();
    return tensor.is_contiguous() && !tensor.is_neg() && (dtype == at::kFloat || dtype == at::kDouble);
  };
  if (!batch.device.is_cpu() || batch.parameters[i].numel() > kSmall) return false;
  if (!fits(batch.parameters[i]) || !fits(batch.gradients[i])) return false;
  return std::all_of(batch.state.begin(), batch.state.end(), [&](const std::vector<at::Tensor>& field) {
    return field.empty() || !field[i].defined() || fits(field[i]);
  });
}

}  // namespace

at::Tensor Stack::of(const std::vector<at::Tensor>& tensors) const {
  if (!tensors[members.front()].defined()) return {};
  if (members.size() == 1) return tensors[members.front()].unsqueeze(0);
  std::vector<at::Tensor> chosen;
  for (const size_t i : members) chosen.push_back(tensors[i]);
  return at::stack(chosen);
}

void Stack::store(const at::Tensor& stack, size_t field) const {
  if (members.size() == 1) return;  // of() returned a view
  const size_t bytes = stack.nbytes() / members.size();
  const auto* from = static_cast<const char*>(stack.const_data_ptr());
  for (size_t i = 0; i < members.size(); ++i) {
    std::memcpy(batch.state[field][members[i]].mutable_data_ptr(), from + i * bytes, bytes);
  }
}

at::Tensor Stack::norms(const at::Tensor& stack) const {
  if (!stack.is_cpu()) return at::linalg_vector_norm(stack, 2).unsqueeze(0);
  if (members.size() == 1) return at::cpu::linalg_vector_norm(stack, 2).unsqueeze(0);
  return at::cpu::linalg_vector_norm(stack.reshape({stack.size(0), -1}), 2, at::IntArrayRef{1});
}

void for_each_stack(FusedBatch& batch, size_t step, const std::function<void(const Stack&)>& update) {
  std::map<std::pair<std::vector<int64_t>, float>, Stack> stacks;
  for (size_t i = 0; i < batch.parameters.size(); ++i) {
    const at::Tensor& parameter = batch.parameters[i];
    if (parameter.numel() == 0) continue;
    if (!can_be_stacked(batch, i)) {
      update({batch, {i}});
      continue;
    }
    const float count = *batch.state[step][i].const_data_ptr<float>();
    stacks.try_emplace({parameter.sizes().vec(), count}, Stack{batch, {}}).first->second.members.push_back(i);
  }
  for (const auto& [key, stack] : stacks) update(stack);
}

}  // namespace ddp::optim
