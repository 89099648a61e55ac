#include "amp/optimizer_record.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>

#include <stdexcept>
#include <unordered_map>
#include <utility>

#include <ddprun/detail/comm/device_copy.h>
#include <ddprun/optim/fused_optimizer.h>

#include "amp/unscale.h"
#include "comm/core/graph_capture.h"

namespace ddp::amp::detail {
namespace {

// With repeated indices, the values of a sparse gradient may overflow only when they are added.
at::Tensor summed(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.coalesce() : gradient;
}

at::Tensor values_of(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient._values() : gradient;
}

}  // namespace

OptimizerRecord::OptimizerRecord(torch::optim::Optimizer& optimizer, bool master_weights, std::string rank)
    : optimizer_(&optimizer), rank_(std::move(rank)) {
  const at::NoGradGuard no_grad;
  // LibTorch's parameters() lists tied weights twice, but they must have one master and be unscaled once.
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known;
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      if (!parameter.requires_grad()) continue;
      const auto [place, is_new] = known.try_emplace(parameter.unsafeGetTensorImpl());
      if (!is_new) {
        parameter = place->second;
        continue;
      }
      if (master_weights && parameter.scalar_type() != at::kFloat) {
        adopt(parameter);
      } else {
        direct_.push_back(parameter);
      }
      place->second = parameter;
    }
  }
  saved_gradients_.resize(direct_.size());
  seen_versions_ = versions();
}

void OptimizerRecord::adopt(at::Tensor& parameter) {
  at::Tensor master = parameter.detach().to(at::kFloat).requires_grad_();
  auto& states = optimizer_->state();
  if (const auto state = states.find(parameter.unsafeGetTensorImpl()); state != states.end()) {
    auto moved = std::move(state->second);
    states.erase(state);
    states[master.unsafeGetTensorImpl()] = std::move(moved);
  }
  halves_.push_back(parameter);
  masters_.push_back(master);
  parameter = std::move(master);
}

void OptimizerRecord::prepare_backward() {
  if (scaled_gradients_) return;  // earlier backwards left gradients with this scale; all are finished together
  // A gradient that still exists is from an earlier backward, and the master already contains its values.
  for (const at::Tensor& half : halves_) half.mutable_grad().reset();
  for (size_t i = 0; i < direct_.size(); ++i) {
    at::Tensor& gradient = direct_[i].mutable_grad();
    // A copy, because DistributedDataParallel reduces the new gradient in the same bucket.
    saved_gradients_[i] = gradient.defined() ? gradient.detach().clone() : at::Tensor();
    gradient.reset();
  }
}

std::vector<at::Tensor> OptimizerRecord::finish_backward(const at::Tensor& inverse_scale) {
  const at::NoGradGuard no_grad;
  scaled_gradients_ = false;
  std::vector<at::Tensor> fresh;  // gradients to unscale
  std::vector<std::pair<size_t, at::Tensor>> added;
  for (size_t i = 0; i < halves_.size(); ++i) {
    const at::Tensor& gradient = halves_[i].grad();
    if (!gradient.defined()) continue;
    const at::Tensor full = summed(gradient).to(at::kFloat);
    if (masters_[i].grad().defined()) {
      added.emplace_back(i, full);
    } else {
      masters_[i].mutable_grad() = full;
    }
    fresh.push_back(values_of(full));
  }
  for (const at::Tensor& parameter : direct_) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = summed(gradient);
    fresh.push_back(values_of(gradient));
  }
  std::vector<at::Tensor> found_infs = unscale(fresh, inverse_scale);
  for (auto& [index, gradient] : added) masters_[index].mutable_grad().add_(gradient);
  for (size_t i = 0; i < direct_.size(); ++i) {
    at::Tensor earlier = std::exchange(saved_gradients_[i], at::Tensor());
    if (!earlier.defined()) continue;
    at::Tensor& gradient = direct_[i].mutable_grad();
    if (gradient.defined()) {
      gradient.add_(earlier);
    } else {
      gradient = std::move(earlier);
    }
  }
  return found_infs;
}

void OptimizerRecord::abandon_backward() {
  for (size_t i = 0; i < direct_.size(); ++i) {
    at::Tensor earlier = std::exchange(saved_gradients_[i], at::Tensor());
    if (earlier.defined()) direct_[i].mutable_grad() = std::move(earlier);
  }
}

void OptimizerRecord::zero_grad() {
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) parameter.mutable_grad().reset();
  }
  for (const at::Tensor& half : halves_) half.mutable_grad().reset();
  for (at::Tensor& earlier : saved_gradients_) earlier.reset();
  scaled_gradients_ = false;
  found_inf_.reset();
}

void OptimizerRecord::note(const at::Tensor& found_inf) {
  found_inf_ = found_inf_.defined() ? found_inf_.add(to_device(found_inf, found_inf_.device())) : found_inf;
}

void OptimizerRecord::step() {
  if (scaled_gradients_) {
    throw std::runtime_error(rank_ +
                             "amp: the gradients of this optimizer are still scaled: its last scale_loss() used "
                             "delay_unscale; call scale_loss() once without delay_unscale before step()");
  }
  if (auto* fused = dynamic_cast<optim::FusedOptimizer*>(optimizer_); fused != nullptr && found_inf_.defined()) {
    fused->step_scaled({.found_inf = found_inf_});
    copy_to_model();
  } else {
    if (found_inf_.defined()) {
      ddp::detail::refuse_capture(
          rank_ + "amp: step() of an optimizer of torch::optim",
          "the host reads whether a gradient is infinite. Use one of ddp::optim, which does not");
    }
    if (!found_inf_.defined() || found_inf_.item<double>() == 0) {
      optimizer_->step();
      copy_to_model();
    }
  }
  found_inf_.reset();  // not earlier, because the optimizer may refuse the step
  // The user clears the gradients of the model.
  for (const at::Tensor& master : masters_) master.mutable_grad().reset();
}

void OptimizerRecord::follow_model() {
  if (training_ || versions() != seen_versions_) return;
  const at::NoGradGuard no_grad;
  if (!masters_.empty()) at::_foreach_copy_(masters_, halves_);
  seen_versions_ = versions();
}

void OptimizerRecord::update_model() {
  if (versions() == seen_versions_) return;
  training_ = true;  // keeps the values that the program wrote to the masters
  copy_to_model();
}

void OptimizerRecord::begin_training() {
  if (training_) return;
  follow_model();
  training_ = true;
}

void OptimizerRecord::copy_to_model() {
  const at::NoGradGuard no_grad;
  if (!masters_.empty()) at::_foreach_copy_(halves_, masters_);
  seen_versions_ = versions();
}

std::vector<int64_t> OptimizerRecord::versions() const {
  std::vector<int64_t> versions;
  versions.reserve(masters_.size());
  for (const at::Tensor& master : masters_) versions.push_back(master._version());
  return versions;
}

}  // namespace ddp::amp::detail
