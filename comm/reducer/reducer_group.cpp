#include "comm/reducer/reducer_group.h"

#include <utility>

#include "comm/group/planned_all_reduce.h"
#include "comm/reducer/logged_collective.h"

namespace ddp::detail {
namespace {

WorkPtr completed_work(const std::vector<at::Tensor>& tensors) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(tensors));
  return work_of(std::move(future));
}

}  // namespace

ReducerProcessGroup::ReducerProcessGroup(std::shared_ptr<const ReductionContext> context)
    : ProcessGroup(context->group().rank(), context->group().size()), context_(std::move(context)) {
  // The Reducer asks the default backend how to allocate buckets.
  const auto real = real_group();
  setBoundDeviceId(real->getBoundDeviceId());
  setDefaultBackend(real->getBackendType());
  setBackend(context_->group().device().type(), real->getBackendType(), real->getDefaultBackend());
}

WorkPtr ReducerProcessGroup::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = tensors.at(0);
  if (tensor.scalar_type() != at::kInt) return work_of(context_->reduce(tensor));
  if (const at::Tensor sum = std::exchange(used_flags_, at::Tensor()); sum.defined()) {
    tensors.front().copy_(sum);
    return completed_work(tensors);
  }
  const GroupState& state = context_->group().state();
  const AllReducePlan plan = plan_all_reduce(state, tensor, {.waiter = AllReduceWaiter::kFuture});
  return run("all_reduce of the used-parameter flags",
             [&] { return start_all_reduce(plan, state, *real_group(), tensors, options); });
}

WorkPtr ReducerProcessGroup::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  return run("broadcast of the bucket order", [&] { return real_group()->broadcast(tensors, options); });
}

c10::intrusive_ptr<c10d::ProcessGroup> ReducerProcessGroup::real_group() const {
  return context_->group().state().group("DistributedDataParallel");
}

WorkPtr ReducerProcessGroup::run(const char* what, const std::function<WorkPtr()>& begin) const {
  return LoggedCollective(context_->group(), what, context_->failure()).run(begin);
}

WorkPtr NullProcessGroup::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& /*options*/) {
  return completed_work(tensors);
}

}  // namespace ddp::detail
