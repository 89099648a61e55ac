#include "ddprun/ddp/delayed_reduction.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <utility>

namespace ddp {
namespace {

constexpr int kNoBackward = -2;

}  // namespace

struct DelayedReduction::State {
  // One flat tensor for all gradients.
  void allocate() {
    const at::TensorOptions options = parameters.at(0).options().requires_grad(false);
    int64_t total = 0;
    for (const at::Tensor& parameter : parameters) total += parameter.numel();
    flat = at::zeros({total}, options);
    gradients.clear();
    int64_t offset = 0;
    for (const at::Tensor& parameter : parameters) {
      const at::Tensor place = flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
      at::Tensor gradient = at::empty({0}, options);
      gradient.set_(place.storage(), place.storage_offset(), place.sizes(), place.strides());
      gradients.push_back(std::move(gradient));
      offset += parameter.numel();
    }
  }
  // Whether the program keeps a gradient of before, or a view of one, that would be overwritten.
  bool is_kept() const {
    bool any_reset = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].grad().defined()) continue;
      any_reset = true;
      if (gradients[i].use_count() > 1) return true;
    }
    return any_reset && flat.storage().use_count() > gradients.size() + 1;
  }

  std::vector<at::Tensor> parameters;
  GroupHandle group;
  std::function<bool()> is_wanted;
  std::string what;
  DelayedParameters names;
  at::Tensor flat{};
  std::vector<at::Tensor> gradients{};  // parts of flat, no autograd views: zero_grad() may detach them
  TensorFuture reduction{};
  std::vector<uint32_t> versions{};  // of the gradients when it was begun last
  int backward = kNoBackward;        // autograd's number of the one in which that was

  // To other memory, with their values: the program keeps what lies in this one.
  void move_gradients() {
    allocate();
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& gradient = parameters[i].mutable_grad();
      if (gradient.defined()) gradients[i].copy_(gradient);
      gradient = gradients[i];
    }
  }

  void start() {
    const at::NoGradGuard no_grad;
    end_left_over();
    backward = torch::autograd::get_current_graph_task_id();
    versions.clear();
    for (const at::Tensor& gradient : gradients) versions.push_back(gradient._version());
    flat.div_(group.size());
    reduction = all_reduce_future(flat, group);
  }
  [[noreturn]] void refuse(size_t late) const {
    throw std::runtime_error(what + " '" + names.names[late] + "' gets its gradient after the trigger '" +
                             names.trigger + "', whose gradient begins the reduction of all of them: name as trigger " +
                             "a parameter whose gradient comes after theirs, of an earlier layer");
  }
  void finish() {
    const auto pending = std::exchange(reduction, nullptr);
    if (pending) pending->waitAndThrow();
  }
  // Of a backward that failed: it still writes to `flat`. Whether the sum failed too no longer matters.
  bool end_left_over() {
    const auto pending = std::exchange(reduction, nullptr);
    if (pending) pending->wait();
    return pending != nullptr;
  }
};

DelayedReduction::DelayedReduction(std::vector<at::Tensor> parameters, at::Tensor trigger, GroupHandle group,
                                   std::function<bool()> is_wanted, std::string what, DelayedParameters names)
    : state_(std::make_shared<State>(State{.parameters = std::move(parameters),
                                           .group = std::move(group),
                                           .is_wanted = std::move(is_wanted),
                                           .what = std::move(what),
                                           .names = std::move(names)})),
      trigger_(std::move(trigger)) {
  const at::Tensor& first = state_->parameters.at(0);
  for (const at::Tensor& parameter : state_->parameters) {
    if (parameter.dtype() != first.dtype() || parameter.device() != first.device())
      throw std::invalid_argument("DistributedDataParallel: delayed parameters must be of one dtype on one device");
  }
  state_->allocate();
  for (size_t i = 0; i < state_->parameters.size(); ++i) {
    arrivals_.emplace_back(state_->parameters[i], [weak = std::weak_ptr<State>(state_), i] {
      const auto state = weak.lock();
      if (state && state->backward == torch::autograd::get_current_graph_task_id()) state->refuse(i);
    });
  }
  hook_ = trigger_.register_hook([weak = std::weak_ptr<State>(state_)](const at::Tensor& gradient) {
    const auto state = weak.lock();
    if (state && state->is_wanted()) {
      state->start();
      torch::autograd::Engine::get_default_engine().queue_callback([state] { state->finish(); });
    }
    return gradient;
  });
}

DelayedReduction::~DelayedReduction() {
  trigger_.remove_hook(hook_);
}

void DelayedReduction::after_forward() {
  const at::NoGradGuard no_grad;
  for (GradientHook& arrival : arrivals_) arrival.keep();
  // A forward inside a backward is no end of it. Gradients that were set to zero since have got the sum after it.
  if (torch::autograd::get_current_graph_task_id() < 0 && state_->end_left_over()) {
    for (size_t i = 0; i < state_->gradients.size(); ++i) {
      if (state_->gradients[i]._version() != state_->versions[i]) state_->gradients[i].zero_();
    }
  }
  if (state_->is_kept()) return state_->move_gradients();
  for (size_t i = 0; i < state_->parameters.size(); ++i) {
    at::Tensor& gradient = state_->parameters[i].mutable_grad();
    if (gradient.defined()) continue;
    gradient = state_->gradients[i];
    gradient.zero_();
  }
}

}  // namespace ddp
