#include "ddprun/detail/ddp/delayed_reduction.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <stdexcept>
#include <utility>

namespace ddp {
namespace {

constexpr int kNoBackward = -2;

}  // namespace

struct DelayedReduction::State : std::enable_shared_from_this<State> {
  State(std::vector<at::Tensor> delayed, GroupHandle ranks, DelayedReductionRules when, std::string text,
        DelayedParameters their_names)
      : parameters(std::move(delayed)),
        group(std::move(ranks)),
        rules(std::move(when)),
        what(std::move(text)),
        names(std::move(their_names)) {
    int64_t total = 0;
    for (const at::Tensor& parameter : parameters) total += parameter.numel();
    flat = at::zeros({total}, parameters.at(0).options().requires_grad(false));
    int64_t offset = 0;
    for (const at::Tensor& parameter : parameters) {
      places.push_back(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
  }

  // This backward computes a gradient, so its end has to be examined.
  void begin_backward() {
    const int task = torch::autograd::get_current_graph_task_id();
    if (rules.has_python_ranks || task < 0 || std::exchange(followed, task) == task) return;
    wanted.reset();
    queue_end(task);
  }
  bool is_wanted() {
    if (!wanted) wanted = rules.is_wanted();
    return *wanted;
  }
  // Called when the trigger's gradient is computed.
  void on_trigger() {
    begin_backward();
    if (rules.has_python_ranks ? !rules.is_wanted() : rules.differs_among_ranks || !is_wanted()) return;
    start();
    torch::autograd::Engine::get_default_engine().queue_callback([state = shared_from_this()] { state->finish(); });
  }
  void on_arrival(size_t parameter) {
    begin_backward();
    if (backward == torch::autograd::get_current_graph_task_id()) refuse(parameter);
  }
  // A callback that a callback queues runs after all earlier ones, so after those that reduce the other gradients.
  void queue_end(int task) {
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), task] {
      const auto state = weak.lock();
      if (!state || !state->is_wanted() || state->backward == task) return;
      if (state->rules.is_busy()) return state->queue_end(task);
      state->start();
      state->finish();
    });
  }

  void start() {
    const at::NoGradGuard no_grad;
    end_left_over();
    backward = torch::autograd::get_current_graph_task_id();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      // This rank has no gradient: -0 does not change a sum in which another rank has one.
      has_gradient(i) ? places[i].copy_(gradient) : places[i].fill_(rules.has_python_ranks ? 0.0 : -0.0);
    }
    flat.div_(group.size());
    reduction = all_reduce_future(flat, group);
  }
  [[noreturn]] void refuse(size_t late) const {
    throw std::runtime_error(what + " '" + names.names[late] + "' gets its gradient after the trigger '" +
                             names.trigger +
                             "', whose gradient begins the reduction of all of them: choose as trigger a parameter of "
                             "an earlier layer, whose gradient is ready after theirs");
  }
  void finish() {
    const auto pending = std::exchange(reduction, nullptr);
    if (!pending) return;
    pending->waitAndThrow();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& gradient = parameters[i].mutable_grad();
      if (has_gradient(i)) {
        gradient.copy_(places[i]);
      } else if (rules.has_python_ranks || (parameters[i].requires_grad() && is_used(places[i]))) {
        gradient = places[i].clone();
      }
    }
  }
  bool has_gradient(size_t i) const {
    return parameters[i].grad().defined() && (rules.has_python_ranks || parameters[i].requires_grad());
  }
  static bool is_used(const at::Tensor& mean) {
    const at::Tensor numbers = mean.is_complex() ? at::view_as_real(mean) : mean;
    return !numbers.eq(0).logical_and(at::signbit(numbers)).all().item<bool>();
  }
  // A backward that failed may have left a reduction that still writes to `flat`. An error of that reduction does not
  // matter.
  void end_left_over() {
    if (const auto pending = std::exchange(reduction, nullptr)) pending->wait();
  }

  std::vector<at::Tensor> parameters;
  GroupHandle group;
  DelayedReductionRules rules;
  std::string what;
  DelayedParameters names;
  // The program never gets this tensor, so tensors that the program holds keep their values.
  at::Tensor flat{};
  std::vector<at::Tensor> places{};  // parts of flat
  TensorFuture reduction{};
  int backward = kNoBackward;  // autograd's number of the backward in which the reduction began
  int followed = kNoBackward;  // the number of the backward whose end is examined
  std::optional<bool> wanted;  // whether that backward is to reduce
};

DelayedReduction::DelayedReduction(std::vector<at::Tensor> parameters, at::Tensor trigger, GroupHandle group,
                                   DelayedReductionRules rules, std::string what, DelayedParameters names)
    : trigger_(std::move(trigger)) {
  const at::Tensor& first = parameters.at(0);
  for (const at::Tensor& parameter : parameters) {
    if (parameter.dtype() != first.dtype() || parameter.device() != first.device())
      throw std::invalid_argument("DistributedDataParallel: delayed parameters must be of one dtype on one device");
  }
  state_ = std::make_shared<State>(std::move(parameters), std::move(group), std::move(rules), std::move(what),
                                   std::move(names));
  for (size_t i = 0; i < state_->parameters.size(); ++i) {
    arrivals_.emplace_back(state_->parameters[i], [weak = std::weak_ptr<State>(state_), i] {
      if (const auto state = weak.lock()) state->on_arrival(i);
    });
  }
  hook_ = trigger_.register_hook([weak = std::weak_ptr<State>(state_)](const at::Tensor& gradient) {
    if (const auto state = weak.lock()) state->on_trigger();
    return gradient;
  });
}

DelayedReduction::~DelayedReduction() {
  trigger_.remove_hook(hook_);
}

void DelayedReduction::begin_backward() {
  state_->begin_backward();
}

void DelayedReduction::after_forward() {
  for (GradientHook& arrival : arrivals_) arrival.keep();
  // A forward inside a backward does not end that backward.
  if (torch::autograd::get_current_graph_task_id() < 0) state_->end_left_over();
}

}  // namespace ddp
