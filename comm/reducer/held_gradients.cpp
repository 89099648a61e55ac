#include "comm/reducer/held_gradients.h"

#include <ATen/core/grad_mode.h>

#include <unordered_set>
#include <utility>

namespace ddp::detail {
namespace {

size_t holders(const at::Tensor& tensor) {
  return tensor.use_count();
}

size_t memory_holders(const at::Tensor& tensor) {
  return tensor.storage().use_count();
}

bool shares_memory(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.defined() && other.defined() && tensor.layout() == at::kStrided && other.layout() == at::kStrided &&
         tensor.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
}

// Beside p.grad() and `incoming`, from which autograd may have taken the memory. If that one is a view, its base holds
// the memory as well.
bool is_held_elsewhere(const at::Tensor& gradient, const at::Tensor& incoming) {
  if (!gradient.defined() || gradient.layout() != at::kStrided) return false;
  if (holders(gradient) > 1) return true;
  size_t known = 1;
  if (shares_memory(incoming, gradient)) {
    known = 2;
    if (incoming.is_view() && incoming._base().use_count() == 1) known = 3;
  }
  return memory_holders(gradient) > known;
}

}  // namespace

HeldGradients::HeldGradients(std::vector<at::Tensor> parameters, std::shared_ptr<ParameterGradients> gradients,
                             std::shared_ptr<ReducerEngine> engine)
    : parameters_(std::move(parameters)),
      gradients_(std::move(gradients)),
      engine_(std::move(engine)),
      is_remembered_(parameters_.size(), false),
      has_restored_(parameters_.size(), false) {}

void HeldGradients::find_buckets() {
  for (std::vector<size_t>& indices : engine_->assignment()) {
    buckets_.push_back({.parameters = std::move(indices), .known_holders = 0});
  }
}

bool HeldGradients::renew_buckets() {
  has_restored_.assign(has_restored_.size(), false);
  if (buckets_.empty()) find_buckets();
  bool any = false;
  for (size_t number = 0; number < buckets_.size(); ++number) {
    const at::Tensor& memory = engine_->bucket_memory(number);
    // Of a sparse gradient, or allocated when the gradients are there.
    if (!memory.defined() || memory.layout() != at::kStrided) continue;
    if (forget_moved(number)) any = true;
    if (!holds_what_is_overwritten(number, buckets_[number])) continue;
    for (const size_t parameter : buckets_[number].parameters) gradients_->forget(parameter);
    engine_->renew_bucket(number);
    buckets_[number].known_holders = 0;
    ++renewed_buckets_;
    any = true;
  }
  return any;
}

bool HeldGradients::forget_moved(size_t number) const {
  const std::vector<size_t>& parameters = buckets_[number].parameters;
  const std::vector<at::Tensor>& views = engine_->bucket_views(number);
  bool any = false;
  for (size_t i = 0; i < parameters.size(); ++i) any = gradients_->forget_moved(parameters[i], views[i]) || any;
  return any;
}

// A gradient that is accumulated where it lies is changed for the program as well, as without buckets.
bool HeldGradients::holds_what_is_overwritten(size_t number, Bucket& bucket) const {
  bool is_overwritten = false;
  for (const size_t parameter : bucket.parameters) {
    const at::Tensor& alias = gradients_->alias(parameter);
    const at::Tensor& gradient = parameters_[parameter].grad();
    if (alias.defined() && gradient.defined() && gradient.is_same(alias)) continue;
    is_overwritten = true;
    if (alias.defined() && holders(alias) > 1) return true;
  }
  if (!is_overwritten) return false;
  const size_t now = memory_holders(engine_->bucket_memory(number));
  if (now == bucket.known_holders) return false;
  if (now != count_own_holders(number, bucket)) return true;
  bucket.known_holders = now;
  return false;
}

// Tensors on the bucket's memory that belong to the engine or to us. p.grad() is one of them, or counts as the
// program's.
size_t HeldGradients::count_own_holders(size_t number, const Bucket& bucket) const {
  const at::Tensor& memory = engine_->bucket_memory(number);
  std::unordered_set<const c10::TensorImpl*> own;
  const auto add = [&](const at::Tensor& tensor) {
    if (shares_memory(tensor, memory)) own.insert(tensor.unsafeGetTensorImpl());
  };
  add(memory);
  for (const at::Tensor& view : engine_->bucket_views(number)) add(view);
  for (const at::Tensor& view : engine_->reduced_views(number)) add(view);
  for (const size_t parameter : bucket.parameters) add(gradients_->alias(parameter));
  return own.size();
}

bool HeldGradients::is_held(size_t parameter, const at::Tensor& incoming) const {
  const at::Tensor& gradient = parameters_[parameter].grad();
  const at::Tensor& alias = gradients_->alias(parameter);
  if (alias.defined() && gradient.defined() && gradient.is_same(alias)) return false;
  return is_held_elsewhere(gradient, incoming);
}

void HeldGradients::remember(size_t parameter) {
  if (is_remembered_[parameter]) return;
  is_remembered_[parameter] = true;
  remembered_.push_back({parameter, parameters_[parameter].grad()});
}

void HeldGradients::remember_all_held() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (is_held(i, {})) remember(i);
  }
}

void HeldGradients::remember_all() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (gradient.defined() && gradient.layout() == at::kStrided) remember(i);
  }
}

void HeldGradients::drop() {
  for (const ReplacedGradient& each : std::exchange(remembered_, {})) is_remembered_[each.parameter] = false;
}

void HeldGradients::restore_gradients() {
  const at::NoGradGuard no_grad;
  for (ReplacedGradient& each : std::exchange(remembered_, {})) {
    is_remembered_[each.parameter] = false;
    has_restored_[each.parameter] = true;
    at::Tensor& gradient = parameters_[each.parameter].mutable_grad();
    if (gradient.defined() && gradient.is_same(each.gradient)) {  // the engine has left it in its place
      if (!gradient.is_same(gradients_->alias(each.parameter))) gradient.copy_(gradients_->alias(each.parameter));
    } else {
      if (gradient.defined()) each.gradient.copy_(gradient);
      gradient = std::move(each.gradient);
    }
  }
}

// Views of a bucket that only the program has are indistinguishable: all of its gradients stay.
ScopedGradientRemoval::ScopedGradientRemoval(const HeldGradients& held)
    : parameters_(held.parameters_), gradients_(held.parameters_.size()) {
  std::vector<bool> stays(parameters_.size(), false);
  for (size_t number = 0; number < held.engine_->bucket_count(); ++number) {
    const at::Tensor& memory = held.engine_->bucket_memory(number);
    if (!memory.defined() || memory.layout() != at::kStrided) continue;
    const HeldGradients::Bucket bucket{.parameters = held.engine_->assignment()[number], .known_holders = 0};
    const bool all = memory_holders(memory) != held.count_own_holders(number, bucket);
    for (const size_t parameter : bucket.parameters) {
      const at::Tensor& gradient = parameters_[parameter].grad();
      if (!gradient.defined() || gradient.layout() != at::kStrided) continue;
      const bool is_alias = gradient.is_same(held.gradients_->alias(parameter));
      stays[parameter] = is_alias ? all || holders(gradient) > 2 : held.is_held(parameter, {});
    }
  }
  take(stays);
}

ScopedGradientRemoval::ScopedGradientRemoval(const std::vector<at::Tensor>& parameters)
    : parameters_(parameters), gradients_(parameters.size()) {
  std::vector<bool> stays;
  for (const at::Tensor& parameter : parameters_) stays.push_back(is_held_elsewhere(parameter.grad(), {}));
  take(stays);
}

void ScopedGradientRemoval::take(const std::vector<bool>& which) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (which[i]) gradients_[i] = std::exchange(parameters_[i].mutable_grad(), at::Tensor());
  }
}

ScopedGradientRemoval::~ScopedGradientRemoval() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (gradients_[i].defined()) parameters_[i].mutable_grad() = std::move(gradients_[i]);
  }
}

}  // namespace ddp::detail
