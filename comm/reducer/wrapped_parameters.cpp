#include "ddprun/detail/comm/wrapped_parameters.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace ddp {
namespace {

class MarkHook final : public torch::autograd::FunctionPostHook {
 public:
  using Callback = WrappedParameters::AfterAccumulate;

  MarkHook(MarkKind kind, size_t parameter, std::shared_ptr<const Callback> after_accumulate)
      : kind_(kind), parameter_(parameter), after_accumulate_(std::move(after_accumulate)) {}
  MarkKind kind() const { return kind_; }
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    static const at::Tensor kUndefined;
    if (*after_accumulate_) (*after_accumulate_)(parameter_, inputs.empty() ? kUndefined : inputs.front());
    return outputs;
  }

 private:
  MarkKind kind_;
  size_t parameter_;
  std::shared_ptr<const Callback> after_accumulate_;
};

}  // namespace

WrappedParameters::WrappedParameters(const std::vector<at::Tensor>& parameters, AfterAccumulate after_accumulate,
                                     MarkKind kind) {
  const auto callback = std::make_shared<const MarkHook::Callback>(std::move(after_accumulate));
  hooks_.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    hooks_.emplace_back(parameters[i], std::make_unique<MarkHook>(kind, i, callback));
  }
}

void WrappedParameters::keep() {
  for (GradientHook& hook : hooks_) hook.keep();
}

bool is_marked(const at::Tensor& parameter, MarkKind kind) {
  if (!parameter.defined() || !parameter.requires_grad() || !parameter.is_leaf()) return false;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  return node && std::ranges::any_of(node->post_hooks(), [kind](const auto& hook) {
           const auto* mark = dynamic_cast<const MarkHook*>(hook.get());
           return mark != nullptr && mark->kind() == kind;
         });
}

namespace {

bool is_any_wrapped(const std::vector<at::Tensor>& parameters) {
  return std::ranges::any_of(
      parameters, [](const at::Tensor& parameter) { return is_marked(parameter, MarkKind::kDistributedDataParallel); });
}

}  // namespace

bool is_wrapped(const torch::nn::Module& module) {
  return is_any_wrapped(module.parameters());
}

void require_unwrapped(const torch::nn::Module& module, const std::string& step) {
  require_unwrapped(module.parameters(), step);
}

void require_unwrapped(const std::vector<at::Tensor>& parameters, const std::string& step) {
  if (!is_any_wrapped(parameters)) return;
  throw std::logic_error(step + ": the model is already wrapped in DistributedDataParallel, which would not see the " +
                         "change. The right order: move the model to its device, convert_sync_batchnorm(), " +
                         "mixed-precision initialize(), then DistributedDataParallel, once.");
}

}  // namespace ddp
