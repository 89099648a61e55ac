#include "comm/reducer/comm_hook_adapter.h"

#include <stdexcept>
#include <utility>

#include "comm/group/store.h"

namespace ddp::detail {

CommHookAdapter::CommHookAdapter(CommHook hook, std::string rank, BucketCheck check, FindParameters parameters,
                                 std::shared_ptr<FailureNote> failure)
    : hook_(std::move(hook)),
      rank_(std::move(rank)),
      check_(std::move(check)),
      parameters_(std::move(parameters)),
      failure_(std::move(failure)) {}

c10::intrusive_ptr<c10::ivalue::Future> CommHookAdapter::runHook(c10d::GradBucket& bucket) {
  check_(bucket.getBuffer());
  const std::string place = rank_ + ": the communication hook failed in bucket " + std::to_string(bucket.getIndex());
  try {
    GradientBucket view(bucket, parameters_(bucket.getIndex()));
    TensorFuture future = hook_(view);
    if (!future) throw std::logic_error("it returned no future");
    return future->devices().empty() ? noting_errors(future, place) : future;
  } catch (const std::exception& error) {
    fail(place + ": " + brief(error));
  } catch (...) {  // anything else would end the process when it reaches the autograd engine
    fail(place + " with something that is no std::exception");
  }
}

at::Tensor CommHookAdapter::parseHookResult(const c10::IValue& result) {
  return c10d::detail::parseCppCommHookResult(result);
}

void CommHookAdapter::fail(const std::string& message) const {
  failure_->set(message);
  throw std::runtime_error(message);
}

// Noted before anybody who waits for the result can go on.
TensorFuture CommHookAdapter::noting_errors(const TensorFuture& future, const std::string& place) const {
  return future->then(
      [failure = failure_, place](c10::ivalue::Future& done) {
        if (done.hasError()) failure->set(place + ": " + done.tryRetrieveErrorMessage());
        return done.value();
      },
      future->elementType());
}

}  // namespace ddp::detail
