#include "ddprun/comm/gradient_bucket.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <stdexcept>
#include <utility>

#include "comm/group/argument_checks.h"
#include "comm/group/planned_all_reduce.h"
#include "comm/reducer/logged_collective.h"

namespace ddp {
namespace {

struct NamedHook {
  TensorFuture operator()(GradientBucket& bucket) const { return hook(bucket); }

  std::string name;
  CommHook hook;
};

}  // namespace

CommHook named_hook(std::string name, CommHook hook) {
  if (!hook || name.empty()) {
    throw std::invalid_argument("named_hook: expected a hook and its name, got " +
                                (hook ? std::string("an empty name") : "an empty hook named '" + name + "'"));
  }
  return NamedHook{.name = std::move(name), .hook = std::move(hook)};
}

std::string hook_name(const CommHook& hook) {
  if (!hook) return "";
  const auto* named = hook.target<NamedHook>();
  return named == nullptr ? "custom" : named->name;
}

GradientBucket::GradientBucket(c10d::GradBucket& bucket, std::vector<at::Tensor> parameters)
    : bucket_(bucket), parameters_(std::move(parameters)) {}

size_t GradientBucket::index() const {
  return bucket_.getIndex();
}
bool GradientBucket::is_last() const {
  return bucket_.isLast();
}
const at::Tensor& GradientBucket::buffer() const {
  return bucket_.getBuffer();
}
void GradientBucket::set_buffer(at::Tensor buffer) {
  bucket_.setBuffer(buffer);
}
std::vector<at::Tensor> GradientBucket::gradients() const {
  return bucket_.getGradients();
}

TensorFuture all_reduce_future(at::Tensor tensor, const GroupHandle& group) {
  const auto c10d_group = group.state().group("all_reduce");
  detail::check_dtype(tensor, group, "all_reduce");
  const at::NoGradGuard no_grad;
  const detail::LoggedCollective collective(group, detail::bucket_text(tensor));
  std::vector<at::Tensor> tensors{tensor};
  const auto plan = detail::plan_all_reduce(group.state(), tensor, {.waiter = detail::AllReduceWaiter::kFuture});
  const auto begin = [&] { return detail::start_all_reduce(plan, group.state(), *c10d_group, tensors); };
  const auto future = collective.run(begin)->getFuture();
  return then(future, [tensor = std::move(tensor)](const at::Tensor&) { return tensor; });
}

TensorFuture completed_future(at::Tensor tensor) {
  std::vector<c10::Device> devices;
  if (!tensor.is_cpu()) devices.push_back(tensor.device());
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::move(devices));
  future->markCompleted(c10::IValue(std::move(tensor)));
  return future;
}

TensorFuture then(const TensorFuture& future, std::function<at::Tensor(const at::Tensor& value)> next) {
  return future->then(
      [next = std::move(next)](c10::ivalue::Future& done) -> c10::IValue {
        const at::NoGradGuard no_grad;  // the backend's threads inherit nothing
        const c10::IValue value = done.value();
        return next(value.isTensor() ? value.toTensor() : value.toTensorVector().at(0));
      },
      c10::TensorType::get());
}

}  // namespace ddp
