#include "comm/reducer/parameter_gradients.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <utility>

#include "base/progress/own_page.h"
#include "base/timeline/own_timeline.h"
#include "comm/collectives/device_events.h"

namespace ddp::detail {
namespace {

bool is_alias(const at::Tensor& tensor, const at::Tensor& view) {
  return tensor.layout() == at::kStrided && tensor.storage().is_alias_of(view.storage()) &&
         tensor.storage_offset() == view.storage_offset() && tensor.sizes() == view.sizes() &&
         tensor.strides() == view.strides() && tensor.scalar_type() == view.scalar_type();
}

}  // namespace

at::Tensor alias_of(const at::Tensor& view) {
  at::Tensor alias = at::empty({0}, view.options());
  alias.set_(view.storage(), view.storage_offset(), view.sizes(), view.strides());
  return alias;
}

ParameterGradients::ParameterGradients(std::vector<at::Tensor> parameters, bool in_buckets,
                                       std::shared_ptr<BucketTuning> tuning, bool in_batches)
    : parameters_(std::move(parameters)),
      in_buckets_(in_buckets),
      in_batches_(in_batches),
      tuning_(std::move(tuning)),
      aliases_(parameters_.size()) {}

// Lives as long as autograd may call the end of a backward. If it is destroyed before, the backward has thrown.
class ParameterGradients::EndOfBackward {
 public:
  explicit EndOfBackward(std::weak_ptr<ParameterGradients> gradients) : gradients_(std::move(gradients)) {}
  EndOfBackward(const EndOfBackward&) = delete;
  EndOfBackward& operator=(const EndOfBackward&) = delete;
  ~EndOfBackward() {
    if (is_reached) return;
    const auto gradients = gradients_.lock();
    if (!gradients) return;
    gradients->end_queued_.store(false, std::memory_order_relaxed);
    gradients->has_gradients_.store(false, std::memory_order_relaxed);
    if (const auto listener = gradients->listener_.lock()) listener->abandon_backward();
  }

  bool is_reached = false;

 private:
  const std::weak_ptr<ParameterGradients> gradients_;
};

void ParameterGradients::follow_backward(std::weak_ptr<Listener> listener) {
  listener_ = std::move(listener);
  hooks_.emplace(parameters_, [weak = weak_from_this()](size_t parameter, const at::Tensor& incoming) {
    if (const auto self = weak.lock()) self->after_accumulate(parameter, incoming);
  });
}

void ParameterGradients::before_forward() {
  hooks_->keep();
}

// Views are replaced one by one, since the end of a backward that throws is never reached, and once more at the end:
// the Reducer's final callback gives views to parameters that only other ranks have used.
void ParameterGradients::after_accumulate(size_t parameter, const at::Tensor& incoming) {
  begin_backward();
  if (!has_gradients_.exchange(true, std::memory_order_relaxed)) {
    own_page().enter_phase(progress::Phase::kBackward);
    end_event(event_.exchange(begin_event(EventKind::kBackward, "backward")));  // of one that threw
    end_on_device(range_.exchange(begin_on_device("backward", parameters_.front().device())));
  }
  const auto listener = listener_.lock();
  const bool is_in_place = listener && listener->take(parameter, incoming);
  // Of a batch the last one is there with all others.
  if (!is_in_place && in_buckets_ && replace_view(parameter) && in_batches_) replace_views();
}

// The Reducer's callback is queued late in backward: a callback that is queued from a callback runs after all earlier
// ones.
void ParameterGradients::begin_backward() {
  if (end_queued_.load(std::memory_order_relaxed) || end_queued_.exchange(true, std::memory_order_relaxed)) return;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = weak_from_this(), end = std::make_shared<EndOfBackward>(weak_from_this())] {
        if (const auto self = weak.lock()) self->end_of_backward(end);
      });
}

void ParameterGradients::end_of_backward(std::shared_ptr<EndOfBackward> end) {
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), end = std::move(end)] {
    const auto self = weak.lock();
    if (!self) return;
    const auto listener = self->listener_.lock();
    // Within another backward the node that runs that one is the current one.
    if (listener && listener->end_backward(torch::autograd::get_current_node() == nullptr)) {
      return self->end_of_backward(end);
    }
    end->is_reached = true;
    self->close_backward();
  });
}

void ParameterGradients::close_backward() {
  end_queued_.store(false, std::memory_order_relaxed);
  if (!has_gradients_.exchange(false, std::memory_order_relaxed)) return;  // autograd::grad()
  replace_views();
  if (tuning_) tuning_->after_backward();
  end_event(event_.exchange(0));
  end_on_device_here(range_.exchange(0));
  own_page().settle_background();
  finish_expected_step();
  own_page().enter_phase(progress::Phase::kOther);
}

void ParameterGradients::replace_views() {
  if (!in_buckets_) return;
  for (size_t i = 0; i < parameters_.size(); ++i) replace_view(i);
}

bool ParameterGradients::replace_view(size_t parameter) {
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (!gradient.defined() || gradient.layout() != at::kStrided || !gradient.is_view()) return false;
  const auto listener = listener_.lock();
  if (listener && !listener->is_in_bucket(parameter, gradient)) return false;
  gradient = alias(parameter, at::Tensor(gradient));
  return true;
}

const at::Tensor& ParameterGradients::alias(size_t parameter, const at::Tensor& view) {
  at::Tensor& alias = aliases_[parameter];
  if (!alias.defined() || !is_alias(alias, view)) alias = alias_of(view);
  return alias;
}

bool ParameterGradients::forget_moved(size_t parameter, const at::Tensor& view) {
  const at::Tensor& alias = aliases_[parameter];
  if (!alias.defined() || is_alias(alias, view)) return false;
  forget(parameter);
  return true;
}

void ParameterGradients::forget() {
  std::ranges::fill(aliases_, at::Tensor());
}

}  // namespace ddp::detail
