#include "comm/reducer/hook_transport.h"

#include <stdexcept>
#include <utility>

#include "comm/group/store.h"

namespace ddp::detail {

HookTransport::HookTransport(const CommHook& hook, GradientBucket& bucket, std::shared_ptr<FailureNote> note,
                             const std::string& rank)
    : hook_(hook),
      bucket_(bucket),
      note_(std::move(note)),
      place_(rank + ": the communication hook failed in bucket " + std::to_string(bucket.index())) {}

TensorFuture HookTransport::start() {
  try {
    TensorFuture future = hook_(bucket_);
    if (!future) throw std::logic_error("it returned no future");
    return future;
  } catch (const std::exception& error) {
    fail(place_ + ": " + brief(error));
  } catch (...) {  // anything else would end the process when it reaches the autograd engine
    fail(place_ + " with something that is no std::exception");
  }
}

// Noted before anybody who waits for the result can go on.
c10::IValue HookTransport::finish(c10::ivalue::Future* arrived) {
  if (arrived->hasError()) note_->set(place_ + ": " + arrived->tryRetrieveErrorMessage());
  return arrived->value();
}

void HookTransport::fail(const std::string& message) const {
  note_->set(message);
  throw std::runtime_error(message);
}

}  // namespace ddp::detail
