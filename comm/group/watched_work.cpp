#include "comm/group/watched_work.h"

#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "comm/group/failure_cause.h"
#include "comm/group/group_state.h"
#include "comm/group/pair_exchange.h"
#include "comm/group/store.h"

namespace ddp::detail {
namespace {

class WatchedWork final : public c10d::Work {
 public:
  explicit WatchedWork(c10::intrusive_ptr<c10::ivalue::Future> future) : future_(std::move(future)) {}

  bool wait(std::chrono::milliseconds /*timeout*/) override {
    future_->waitAndThrow();
    return true;
  }
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return future_->value().toTensorVector(); }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class WatchedGroup final : public c10d::ProcessGroup {
 public:
  WatchedGroup(GroupHandle group, FailureListener on_failure, Defer defer, BucketCheck check)
      : ProcessGroup(group.rank(), group.size()),
        group_(std::move(group)),
        on_failure_(std::move(on_failure)),
        defer_(std::move(defer)),
        check_(std::move(check)) {
    // The Reducer asks the default backend how to allocate buckets.
    const auto watched = inner();
    setBoundDeviceId(watched->getBoundDeviceId());
    setDefaultBackend(watched->getBackendType());
    setBackend(group_.device().type(), watched->getBackendType(), watched->getDefaultBackend());
  }

  // Not the real one: for "gloo" c10d::Logger casts the backend to ProcessGroupGloo, which it need not be.
  const std::string getBackendName() const override { return "watched"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const at::Tensor& bucket = tensors.at(0);
    if (check_) check_(bucket);
    const bool flags = bucket.scalar_type() == at::kInt;
    const std::string what = flags ? "all_reduce of the used-parameter flags"
                                   : "all_reduce of a gradient bucket of " + size_of(bucket) + " bytes";
    const Watch watch(group_, what, on_failure_);
    if (const auto exchange = group_.state().pair_exchange();
        exchange && options.reduceOp == c10d::ReduceOp::SUM && PairExchange::takes(bucket)) {
      return watch.exchange(exchange, bucket, defer_);
    }
    return watch.start([&] { return inner()->allreduce(tensors, options); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return Watch(group_, "broadcast of the bucket order", on_failure_).start([&] {
      return inner()->broadcast(tensors, options);
    });
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> inner() const { return group_.state().group("DistributedDataParallel"); }
  static std::string size_of(const at::Tensor& bucket) {
    return bucket.is_sparse() ? "sparse" : std::to_string(bucket.nbytes());
  }

  GroupHandle group_;
  FailureListener on_failure_;
  Defer defer_;
  BucketCheck check_;
};

}  // namespace

Watch::Watch(GroupHandle group, std::string what, FailureListener on_failure)
    : group_(std::move(group)),
      what_(std::move(what)),
      on_failure_(std::move(on_failure)),
      number_(group_.state().next_operation(what_)) {}

void Watch::fail(const std::exception& error) const {
  const std::string text = who(group_.info()) + ": " + what_ + " (number " + std::to_string(number_) +
                           ") failed: " + brief(error) + failure_cause(group_.state(), number_);
  if (on_failure_) on_failure_(text);
  throw std::runtime_error(text);
}

c10::intrusive_ptr<c10d::Work> Watch::start(const std::function<c10::intrusive_ptr<c10d::Work>()>& start) const {
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = start();
  } catch (const std::exception& error) {
    fail(error);
  }
  const auto future = work->getFuture();
  if (!future->devices().empty()) {
    group_.state().log().end(number_);  // its end is seen on the device only
    return work;
  }
  return c10::make_intrusive<WatchedWork>(future->then(
      [watch = *this](c10::ivalue::Future& done) {
        try {
          c10::IValue value = done.value();
          watch.group_.state().log().end(watch.number_);
          return value;
        } catch (const std::exception& error) {
          watch.fail(error);
        }
      },
      future->elementType()));
}

c10::intrusive_ptr<c10d::Work> Watch::exchange(const std::shared_ptr<PairExchange>& exchange, const at::Tensor& tensor,
                                               const Defer& defer) const {
  std::shared_ptr<PairExchange::Sum> sum;
  try {
    sum = exchange->start(tensor);
  } catch (const std::exception& error) {
    fail(error);
  }
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  defer([watch = *this, exchange, sum, tensor, future] {
    try {
      try {
        exchange->finish(sum);
        watch.group_.state().log().end(watch.number_);
      } catch (const std::exception& error) {
        watch.fail(error);
      }
    } catch (const std::exception&) {
      future->setError(std::current_exception());
      return;
    }
    future->markCompleted(c10::IValue(std::vector<at::Tensor>{tensor}));
  });
  return c10::make_intrusive<WatchedWork>(std::move(future));
}

c10::intrusive_ptr<c10d::ProcessGroup> make_watched_group(const GroupHandle& group, FailureListener on_failure,
                                                          Defer defer, BucketCheck check) {
  return c10::make_intrusive<WatchedGroup>(group, std::move(on_failure), std::move(defer), std::move(check));
}

}  // namespace ddp::detail
