#include "comm/reducer/cpu_reducer.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/reducer/parameter_gradients.h"

namespace ddp::detail {
namespace {

// Gradients on their way into buckets, with the bits of c10d::Reducer's operators.

// Up to here an operator's preparations cost more than the numbers.
constexpr int64_t kSmallGradientSize = int64_t{16} << 10;

template <typename Number>
void multiply(Number* __restrict to, const Number* __restrict from, int64_t count, Number factor) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

template <typename Number>
void divide_numbers(Number* numbers, int64_t count, Number by) {
  for (int64_t i = 0; i < count; ++i) numbers[i] /= by;
}

bool is_simple(const at::Tensor& tensor) {
  return tensor.numel() <= kSmallGradientSize && tensor.is_contiguous() && !tensor.requires_grad() && !tensor.is_neg();
}

// Of the place's dtype, device, layout and number of elements.
bool fits(const at::Tensor& gradient, const at::Tensor& place) {
  return gradient.layout() == at::kStrided && gradient.scalar_type() == place.scalar_type() &&
         gradient.device() == place.device() && gradient.numel() == place.numel();
}

// `place` = `gradient` / `ranks`, by a multiplication with the reciprocal.
void divide_into(const at::Tensor& place, const at::Tensor& gradient, int ranks) {
  const double factor = 1.0 / ranks;
  if (is_simple(gradient) && place.is_contiguous()) {
    if (place.scalar_type() == at::kFloat) {
      return multiply(place.mutable_data_ptr<float>(), gradient.const_data_ptr<float>(), place.numel(),
                      static_cast<float>(factor));
    }
    if (place.scalar_type() == at::kDouble) {
      return multiply(place.mutable_data_ptr<double>(), gradient.const_data_ptr<double>(), place.numel(), factor);
    }
  }
  at::Tensor to = place;
  at::mul_out(to, gradient, at::native::wrapped_scalar_tensor(factor));
}

// `place` /= `ranks`, by a division.
void divide(const at::Tensor& place, int ranks) {
  if (is_simple(place)) {
    if (place.scalar_type() == at::kFloat) {
      return divide_numbers(place.mutable_data_ptr<float>(), place.numel(), static_cast<float>(ranks));
    }
    if (place.scalar_type() == at::kDouble) {
      return divide_numbers(place.mutable_data_ptr<double>(), place.numel(), static_cast<double>(ranks));
    }
  }
  place.div_(ranks);
}

}  // namespace

CpuReducer::CpuReducer(std::shared_ptr<const ReductionContext> context, std::shared_ptr<ReducerEngine> engine,
                       std::shared_ptr<ParameterGradients> gradients)
    : context_(std::move(context)),
      engine_(std::move(engine)),
      gradients_(std::move(gradients)),
      parameters_(context_->model().parameters) {}

bool CpuReducer::begin_step() {
  const std::lock_guard lock(mutex_);
  stage_ = Stage::kIdle;
  if (!engine_->has_rebuilt() || !context_->hook()->name().empty()) return false;
  if (places_.empty()) find_places();
  ++step_;
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.size;
    bucket.reduction = {};  // of a backward that failed
  }
  stage_ = Stage::kExpecting;
  engine_->begin_foreign_step();
  return true;
}

void CpuReducer::skip_step() {
  const std::lock_guard lock(mutex_);
  stage_ = Stage::kIdle;
}

void CpuReducer::forget() {
  const std::lock_guard lock(mutex_);
  stage_ = Stage::kIdle;
  places_.clear();
  buckets_.clear();
}

void CpuReducer::find_places() {
  places_.resize(parameters_.size());
  for (const std::vector<size_t>& indices : engine_->assignment()) {
    const size_t number = buckets_.size();
    buckets_.push_back({.memory = engine_->bucket_memory(number), .size = indices.size()});
    const std::vector<at::Tensor>& views = engine_->bucket_views(number);
    for (size_t i = 0; i < indices.size(); ++i) {
      gradients_->alias(indices[i], views[i]);
      places_[indices[i]] = {.bucket = number, .index = i};
    }
  }
}

void CpuReducer::rebind_buckets() {
  const std::lock_guard lock(mutex_);
  if (places_.empty()) return;
  const auto assignment = engine_->assignment();
  for (size_t number = 0; number < buckets_.size(); ++number) {
    buckets_[number].memory = engine_->bucket_memory(number);
    const std::vector<at::Tensor>& views = engine_->bucket_views(number);
    for (size_t i = 0; i < views.size(); ++i) gradients_->alias(assignment[number][i], views[i]);
  }
}

// In the bucket, and no view of it; another tensor than before where the program has moved that one to other memory.
const at::Tensor& CpuReducer::place_of(size_t parameter) const {
  const Place& place = places_[parameter];
  return gradients_->alias(parameter, engine_->bucket_views(place.bucket)[place.index]);
}

bool CpuReducer::is_in_step() const {
  const std::lock_guard lock(mutex_);
  return stage_ != Stage::kIdle;
}

bool CpuReducer::take(size_t parameter, bool is_held) {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::kIdle) return false;
  if (stage_ == Stage::kExpecting && at::GradMode::is_enabled()) {
    // Gradients that have a graph of their own: what c10d's operators make of them is its own matter.
    stage_ = Stage::kIdle;
    engine_->prepare_for_backward({});
    return false;
  }
  stage_ = Stage::kCollecting;
  Place& place = places_[parameter];
  if (std::exchange(place.step, step_) == step_) refuse(parameter, /*is_second=*/true);
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  const at::Tensor& memory = place_of(parameter);
  put(gradient, parameter, memory);
  place.is_held = is_held;
  if (gradient.defined() && !is_held) gradient = memory;
  if (--buckets_[place.bucket].pending == 0) send_full_buckets();
  return true;
}

// As c10d does: what lies there already has been accumulated there.
void CpuReducer::put(const at::Tensor& gradient, size_t parameter, const at::Tensor& place) const {
  if (!gradient.defined()) {
    place.zero_();
  } else if (gradient.is_same(place)) {
    divide(place, context_->group().size());
  } else if (!fits(gradient, place)) {
    refuse(parameter, /*is_second=*/false);
  } else {
    divide_into(place, gradient, context_->group().size());
  }
}

void CpuReducer::send_full_buckets() {
  for (; next_ < buckets_.size() && buckets_[next_].pending == 0; ++next_) {
    if (next_ == 0) engine_->note(ReducerEngine::Moment::kFirstBucket);
    Bucket& bucket = buckets_[next_];
    bucket.reduction = context_->begin(bucket.memory);
  }
  if (next_ < buckets_.size()) return;
  stage_ = Stage::kSent;
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), step = step_] {
    if (const auto self = weak.lock()) self->finish(step);
  });
}

void CpuReducer::finish(uint64_t step) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::kSent || step != step_) return;
  engine_->note(ReducerEngine::Moment::kComputed);
  for (Bucket& bucket : buckets_) std::exchange(bucket.reduction, {}).finish();
  check_gradients();
  engine_->note(ReducerEngine::Moment::kReduced);
  stage_ = Stage::kIdle;
}

// A parameter that only other ranks have a gradient for gets theirs; one that was given another gradient since is an
// error of c10d's.
void CpuReducer::check_gradients() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!gradient.defined()) {
      gradient = place_of(i);
    } else if (!places_[i].is_held && !gradient.is_same(place_of(i))) {
      throw std::runtime_error(context_->rank() + ": the gradient of parameter '" + context_->model().names[i] +
                               "' was replaced before it was reduced. A function that changes gradients in backward " +
                               "has to change them in place (gradient_as_bucket_view)");
    }
  }
}

void CpuReducer::report_ready_gradients() {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::kIdle) return;
  std::vector<size_t> ready;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].step == step_) ready.push_back(i);
  }
  if (ready.empty()) return;  // a forward without backward
  if (ready.size() == places_.size()) {
    throw std::runtime_error(context_->rank() +
                             ": the last backward ended before its gradients were reduced, so the ranks' gradients " +
                             "differ. Do not catch exceptions of backward on some ranks only");
  }
  stage_ = Stage::kIdle;
  engine_->mark_ready_without_reduction(ready);
}

// c10d says what is wrong.
void CpuReducer::refuse(size_t parameter, bool is_second) const {
  engine_->mark_ready_without_reduction({parameter});
  if (is_second) engine_->autograd_hook(parameter);
  throw std::logic_error(context_->rank() + ": the gradient of parameter '" + context_->model().names[parameter] +
                         "' cannot be reduced");
}

}  // namespace ddp::detail
