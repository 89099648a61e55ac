#include "comm/reducer/reduction_context.h"

#include <ATen/ops/isfinite.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/timeline/own_timeline.h"
#include "comm/backends/c10d_compat.h"
#include "comm/collectives/device_events.h"
#include "comm/group/planned_all_reduce.h"
#include "comm/reducer/logged_collective.h"

namespace ddp::detail {
namespace {

// The first callback of a backward. The wait ends after all callbacks, which let the stream of backward wait for the
// buckets; on the host with the event of backward, unless recording began within it and that event is not there.
void begin_wait(c10::Device device) {
  const uint64_t on_host = begin_event(EventKind::kWait, "wait for gradients");
  const uint64_t on_device = begin_on_device("wait for gradients", device);
  torch::autograd::Engine::get_default_engine().queue_callback([on_host, on_device] {
    end_event(on_host);
    end_on_device_here(on_device);
  });
}

class GroupTransport final : public BucketTransport {
 public:
  GroupTransport(GroupHandle group, at::Tensor bucket, std::shared_ptr<ReductionFailure> note)
      : group_(std::move(group)), bucket_(std::move(bucket)), note_(std::move(note)) {}

  TensorFuture start() override {
    // Takes its number now, since a check may have refused the bucket before.
    const LoggedCollective& collective = collective_.emplace(group_, bucket_text(bucket_), note_);
    const GroupState& state = group_.state();
    const AllReducePlan plan = plan_all_reduce(state, bucket_, {.waiter = AllReduceWaiter::kBackward});
    std::vector<at::Tensor> tensors{bucket_};
    WorkPtr work = collective.start(
        [&] { return start_all_reduce(plan, state, *state.group("DistributedDataParallel"), tensors); });
    if (plan == AllReducePlan::kInWait) {
      awaited_ = std::move(work);
      return nullptr;
    }
    auto future = work->getFuture();
    if (!future->devices().empty()) collective.end();  // it is seen on the device only
    return future;
  }

  c10::IValue finish(c10::ivalue::Future* arrived) override {
    if (arrived != nullptr) return collective_->finish(*arrived);
    try {
      awaited_->wait();
    } catch (const std::exception& error) {
      collective_->fail(error);
    }
    collective_->end();
    return c10::IValue(awaited_->result());
  }

 private:
  const GroupHandle group_;
  const at::Tensor bucket_;
  const std::shared_ptr<ReductionFailure> note_;
  std::optional<LoggedCollective> collective_;
  WorkPtr awaited_;  // null where a future completes instead
};

}  // namespace

std::shared_ptr<BucketTransport> group_transport(const GroupHandle& group, const at::Tensor& bucket,
                                                 std::shared_ptr<ReductionFailure> note) {
  return std::make_shared<GroupTransport>(group, bucket, std::move(note));
}

ReductionContext::ReductionContext(ReducedModel model, GroupHandle group, DdpOptions options)
    : model_(std::move(model)), group_(std::move(group)), options_(std::move(options)), rank_(who(group_.info())) {}

c10::IValue ReductionContext::PendingReduction::finish() const {
  if (arrived) {
    arrived->waitAndThrow();
    return arrived->value();
  }
  c10::IValue sum = transport->finish(nullptr);
  event.end();
  return sum;
}

ReductionContext::PendingReduction ReductionContext::begin(const at::Tensor& bucket,
                                                           const std::shared_ptr<BucketTransport>& transport) const {
  const BucketEvent event =
      events_.begin(bucket, [this](std::function<void()> step) { at_end_of_backward(std::move(step)); });
  check(bucket);
  compare_hooks();
  event.mark_start();
  TensorFuture arrived = transport->start();
  if (arrived && !arrived->devices().empty()) {
    if (event.on_host != 0) arrived->addCallback([event](c10::ivalue::Future& /*done*/) { event.end(); });
  } else if (arrived) {
    arrived = arrived->then(
        [transport, event](c10::ivalue::Future& done) {
          event.end();
          return transport->finish(&done);
        },
        arrived->elementType());
  }
  return {.transport = transport, .arrived = std::move(arrived), .event = event};
}

ReductionContext::PendingReduction ReductionContext::begin(const at::Tensor& bucket) const {
  return begin(bucket, group_transport(group_, bucket, failure_));
}

TensorFuture ReductionContext::reduce(const at::Tensor& bucket) const {
  return reduce(bucket, group_transport(group_, bucket, failure_));
}

TensorFuture ReductionContext::reduce(const at::Tensor& bucket,
                                      const std::shared_ptr<BucketTransport>& transport) const {
  const PendingReduction reduction = begin(bucket, transport);
  return reduction.arrived ? reduction.arrived : finish_before_reducer(reduction);
}

// The Reducer queues its last step after the last bucket's reduction, so what is queued in that call comes first. A
// reentrant backward, whose end may be the Reducer's, comes before what earlier buckets have queued: whichever is first
// finishes all. Buckets of a backward that failed are gone with what it had queued.
TensorFuture ReductionContext::finish_before_reducer(const PendingReduction& reduction) const {
  auto sum = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto finish = std::make_shared<std::function<void()>>([reduction, sum] {
    c10::IValue value;
    try {
      value = reduction.finish();
    } catch (const std::exception&) {
      sum->setError(std::current_exception());
      return;
    }
    sum->markCompleted(std::move(value));
  });
  unfinished_->push_back(finish);
  at_end_of_backward([finish, unfinished = unfinished_] {
    for (const auto& each : std::exchange(*unfinished, {})) {
      if (const auto step = each.lock()) (*step)();
    }
  });
  return sum;
}

// A running backward is not delayed; without one there is nothing to wait for later.
void ReductionContext::compare_hooks() const {
  if (!hook_->begin(group_, failure_)) return;
  at_end_of_backward([hook = hook_] { hook->finish_comparison(); });
}

void ReductionContext::at_end_of_backward(std::function<void()> step) const {
  const bool in_backward = torch::autograd::get_current_graph_task_id() >= 0;
  if (in_backward && !finishes_at_once_) {
    torch::autograd::Engine::get_default_engine().queue_callback(std::move(step));
  } else {
    step();
  }
}

void ReductionContext::finishing_at_once(const std::function<void()>& reduce_all) {
  finishes_at_once_ = true;
  const auto reset = c10::make_scope_exit([this] { finishes_at_once_ = false; });
  reduce_all();
}

void ReductionContext::refuse_after_failure() const {
  const std::string failure = failure_->get();
  if (failure.empty()) return;
  throw std::runtime_error(rank_ +
                           ": an earlier backward failed, so the ranks' gradients differ and training cannot continue: "
                           "restart all ranks from a checkpoint. It was: " +
                           failure);
}

void ReductionContext::check(const at::Tensor& bucket) const {
  if (!options_.check_gradients || !bucket.is_floating_point()) return;
  if (at::isfinite(bucket.is_sparse() ? bucket._values() : bucket).all().item<bool>()) return;
  std::string message = rank_ + ": a gradient is NaN or infinite before its reduction";
  for (size_t i = 0; i < model_.parameters.size(); ++i) {
    const at::Tensor& gradient = model_.parameters[i].grad();
    if (!gradient.defined() || gradient.is_sparse() || at::isfinite(gradient).all().item<bool>()) continue;
    message += ": parameter '" + model_.names[i] + "'";
    break;
  }
  failure_->set(message);
  throw std::runtime_error(message);
}

BucketEvent BucketEvents::begin(const at::Tensor& bucket, const std::function<void(std::function<void()>)>& at_end) {
  if (recording() == nullptr) return {};
  const int64_t backward = torch::autograd::get_current_graph_task_id();
  if (backward < 0 || backward != backward_) {
    backward_ = backward;
    next_ = 0;
    if (backward >= 0) at_end([device = bucket.device()] { begin_wait(device); });
  }
  const uint64_t index = next_++;
  const at::Tensor& values = bucket.is_sparse() ? bucket._values() : bucket;
  const std::string name = "bucket " + std::to_string(index);
  return {.on_host = begin_event(EventKind::kBucket, name, index, static_cast<uint64_t>(values.nbytes())),
          .on_device = begin_on_device(name, bucket.device())};
}

void BucketEvent::mark_start() const {
  if (Recorder* recorder = own_recorder(); recorder != nullptr && on_host != 0) recorder->mark(on_host);
}

void BucketEvent::end() const {
  end_event(on_host);
  end_on_device_here(on_device);
}

}  // namespace ddp::detail
