#include "ddprun/detail/ddp/delayed_reduction.h"

#include <ATen/core/grad_mode.h>
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
  std::vector<at::Tensor> parameters;
  GroupHandle group;
  std::function<bool()> is_wanted;
  std::string what;
  DelayedParameters names;
  // Never handed out: what the program holds keeps its values.
  at::Tensor flat{};
  std::vector<at::Tensor> places{};  // parts of flat
  TensorFuture reduction{};
  int backward = kNoBackward;  // autograd's number of the one in which it was begun

  void allocate() {
    int64_t total = 0;
    for (const at::Tensor& parameter : parameters) total += parameter.numel();
    flat = at::zeros({total}, parameters.at(0).options().requires_grad(false));
    int64_t offset = 0;
    for (const at::Tensor& parameter : parameters) {
      places.push_back(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
  }
  void start() {
    const at::NoGradGuard no_grad;
    end_left_over();
    backward = torch::autograd::get_current_graph_task_id();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      gradient.defined() ? places[i].copy_(gradient) : places[i].zero_();
    }
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
    if (!pending) return;
    pending->waitAndThrow();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& gradient = parameters[i].mutable_grad();
      gradient.defined() ? (void)gradient.copy_(places[i]) : (void)(gradient = places[i].clone());
    }
  }
  // Of a backward that failed: it still writes to `flat`. Whether the sum failed too no longer matters.
  void end_left_over() {
    if (const auto pending = std::exchange(reduction, nullptr)) pending->wait();
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
  for (GradientHook& arrival : arrivals_) arrival.keep();
  // A forward inside a backward is no end of it.
  if (torch::autograd::get_current_graph_task_id() < 0) state_->end_left_over();
}

}  // namespace ddp
