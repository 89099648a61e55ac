#include "comm/group/planned_all_reduce.h"

#include <ATen/record_function.h>

#include "comm/backends/all_reduce_backend.h"

namespace ddp::detail {
namespace {

bool is_real_float(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

// Whether the call can be logged and shown within itself, which is implemented for the usual tensors only.
bool fits_call(const at::Tensor& tensor, const AllReduceCall& call) {
  if (call.has_own_timeout || static_cast<size_t>(tensor.dim()) > CallShape::kDimensions) return false;
  const at::ScalarType dtype = tensor.scalar_type();
  if (!is_real_float(dtype) && ((dtype != at::kInt && dtype != at::kLong) || call.is_average)) return false;
  if (!tensor.is_contiguous() || tensor.is_neg()) return false;
  return !at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);  // otherwise a profiler wants to record it
}

}  // namespace

AllReducePlan plan_all_reduce(const GroupState& group, const at::Tensor& tensor, const AllReduceCall& call) {
  const AllReduceTraits& backend = group.all_reduce_traits();
  AllReduceRequest request{.waiter = call.waiter};
  request.is_dense_on_cpu =
      group.has_cpu_backend() && tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided;
  // The other properties are queried only if the choice depends on them: the query takes as long as a small sum.
  if (request.is_dense_on_cpu && call.waiter == AllReduceWaiter::kCaller && backend.in_call) {
    request.fits_call = fits_call(tensor, call);
  } else if (request.is_dense_on_cpu && call.waiter == AllReduceWaiter::kBackward) {
    request.bytes = tensor.nbytes();
    request.is_contiguous_float = is_real_float(tensor.scalar_type()) && tensor.is_contiguous();
  }
  return choose_all_reduce(backend, request);
}

c10::intrusive_ptr<c10d::Work> start_all_reduce(AllReducePlan plan, const GroupState& group,
                                                c10d::ProcessGroup& c10d_group, std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options) {
  switch (plan) {
    case AllReducePlan::kInWait:
      return group.all_reduce_backend()->all_reduce_in_wait(tensors.at(0));
    case AllReducePlan::kBackend:
      return c10d_group.getBackend(c10::kCPU)->allreduce(tensors, options);
    case AllReducePlan::kInCall:
    case AllReducePlan::kGroup:
      break;
  }
  return c10d_group.allreduce(tensors, options);
}

}  // namespace ddp::detail
