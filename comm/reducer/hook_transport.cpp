#include "comm/reducer/hook_transport.h"

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <stdexcept>
#include <utility>

#include "comm/group/argument_checks.h"
#include "comm/group/store.h"

namespace ddp::detail {

HookTransport::HookTransport(const CommHook& hook, GradientBucket& bucket, std::shared_ptr<ReductionFailure> note,
                             const std::string& rank)
    : hook_(hook),
      bucket_(bucket),
      note_(std::move(note)),
      elements_(bucket.buffer().is_sparse() ? -1 : bucket.buffer().numel()),
      place_(rank + ": the communication hook failed in bucket " + std::to_string(bucket.index())) {}

TensorFuture HookTransport::start() {
  try {
    TensorFuture future = hook_(bucket_);
    if (!future) throw std::logic_error("it returned no future");
    return future;
  } catch (const std::exception& error) {
    fail(place_ + ": " + message_of(error));
  } catch (...) {  // anything else would end the process when it reaches the autograd engine
    fail(place_ + " with something that is not a std::exception");
  }
}

// Recorded before a thread that waits for the result can continue.
c10::IValue HookTransport::finish(c10::ivalue::Future* arrived) {
  if (arrived->hasError()) note_->set(place_ + ": " + arrived->tryRetrieveErrorMessage());
  c10::IValue value = arrived->value();
  check(c10d::detail::parseCppCommHookResult(value));
  return value;
}

// c10d takes what it needs from the front of a longer tensor.
void HookTransport::check(const at::Tensor& result) const {
  if (elements_ < 0) return;
  if (result.defined() && result.layout() == at::kStrided && result.numel() == elements_) return;
  fail(place_ + ": expected a dense tensor of the bucket's " + std::to_string(elements_) + " elements, got " +
       (result.defined() ? "a " + describe(result) : "an undefined one"));
}

void HookTransport::fail(const std::string& message) const {
  note_->set(message);
  throw std::runtime_error(message);
}

}  // namespace ddp::detail
