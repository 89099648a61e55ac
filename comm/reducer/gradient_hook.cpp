#include "ddprun/detail/comm/gradient_hook.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "comm/versions/autograd_node.h"

namespace ddp {
namespace {

class AfterAccumulate final : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulate(std::function<void()> hook) : hook_(std::move(hook)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    hook_();
    return outputs;
  }

 private:
  std::function<void()> hook_;
};

}  // namespace

struct GradientHook::Impl {
  at::Tensor parameter;
  versions::NodePtr node;  // held, since the parameter itself refers to it weakly
  uintptr_t key;
};

GradientHook::GradientHook(const at::Tensor& parameter, std::function<void()> hook)
    : GradientHook(parameter, std::make_unique<AfterAccumulate>(std::move(hook))) {}

GradientHook::GradientHook(const at::Tensor& parameter, std::unique_ptr<torch::autograd::FunctionPostHook> hook) {
  if (!parameter.defined() || !parameter.requires_grad() || !parameter.is_leaf()) {
    throw std::invalid_argument("GradientHook: expected a leaf that requires gradients, got " +
                                std::string(!parameter.defined()         ? "an undefined tensor"
                                            : !parameter.requires_grad() ? "a tensor that does not require gradients"
                                                                         : "the result of an operation"));
  }
  auto node = torch::autograd::impl::grad_accumulator(parameter);
  const uintptr_t key = node->add_post_hook(std::move(hook));
  impl_ = std::make_unique<Impl>(Impl{parameter, std::move(node), key});
}

GradientHook::~GradientHook() {
  if (impl_) impl_->node->del_post_hook(impl_->key);
}

GradientHook::GradientHook(GradientHook&& other) noexcept = default;

void GradientHook::keep() {
  if (!impl_) return;
  if (torch::autograd::impl::try_get_grad_accumulator(impl_->parameter) == impl_->node) return;
  torch::autograd::impl::set_grad_accumulator(impl_->parameter, versions::WeakNodePtr(impl_->node));
}

}  // namespace ddp
