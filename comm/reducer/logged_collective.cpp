#include "comm/reducer/logged_collective.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "comm/group/failure_cause.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"

namespace ddp::detail {
namespace {

class FutureWork final : public c10d::Work {
 public:
  explicit FutureWork(TensorFuture future) : future_(std::move(future)) {}

  bool wait(std::chrono::milliseconds /*timeout*/) override {
    future_->waitAndThrow();
    return true;
  }
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return future_->value().toTensorVector(); }

 private:
  TensorFuture future_;
};

}  // namespace

LoggedCollective::LoggedCollective(GroupHandle group, std::string what, std::shared_ptr<ReductionFailure> note)
    : group_(std::move(group)),
      what_(std::move(what)),
      note_(std::move(note)),
      number_(group_.state().next_operation(what_, /*in_background=*/true)) {}

WorkPtr LoggedCollective::start(const std::function<WorkPtr()>& begin) const {
  try {
    return begin();
  } catch (const std::exception& error) {
    fail(error);
  }
}

c10::IValue LoggedCollective::finish(c10::ivalue::Future& done) const {
  try {
    c10::IValue value = done.value();
    end();
    return value;
  } catch (const std::exception& error) {
    fail(error);
  }
}

WorkPtr LoggedCollective::run(const std::function<WorkPtr()>& begin) const {
  WorkPtr work = start(begin);
  const auto future = work->getFuture();
  if (!future->devices().empty()) {
    end();  // it is seen on the device only
    return work;
  }
  return work_of(future->then([collective = *this](c10::ivalue::Future& done) { return collective.finish(done); },
                              future->elementType()));
}

void LoggedCollective::end() const {
  group_.state().log().end(number_);
}

void LoggedCollective::fail(const std::exception& error) const {
  const std::string text = who(group_.info()) + ": " + what_ + " (number " + std::to_string(number_) +
                           ") failed: " + message_of(error) + failure_cause(group_.state(), number_);
  if (note_) note_->set(text);
  throw std::runtime_error(text);
}

WorkPtr work_of(TensorFuture future) {
  return c10::make_intrusive<FutureWork>(std::move(future));
}

std::string bucket_text(const at::Tensor& bucket) {
  if (bucket.is_sparse()) return "all_reduce of a sparse gradient";
  return "all_reduce of a gradient bucket of " + std::to_string(bucket.nbytes()) + " bytes";
}

}  // namespace ddp::detail
