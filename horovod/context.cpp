#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include <ddprun/comm/collectives.h>

#include "comm/group/argument_checks.h"
#include "comm/group/multiply.h"
#include "ddprun/horovod/horovod.h"

namespace ddp::horovod {
namespace {

ReduceOp reduce_op(Op op, const GroupHandle& group, const char* operation) {
  switch (op) {
    case Op::kAverage:
      return ReduceOp::kAvg;
    case Op::kSum:
      return ReduceOp::kSum;
    case Op::kMin:
      return ReduceOp::kMin;
    case Op::kMax:
      return ReduceOp::kMax;
    case Op::kProduct:
      return ReduceOp::kProduct;
    case Op::kAdasum:
      break;
  }
  ddp::detail::refuse(group, operation, "Adasum is defined for allreduce and the optimizer only");
}

at::Tensor copy_of(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  ddp::detail::check_packable(tensor, group, operation);
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

void check_factors(const at::Tensor& tensor, const AllreduceOptions& options, const GroupHandle& group) {
  if (options.prescale_factor == 1.0 && options.postscale_factor == 1.0) return;
  if (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type())) return;
  ddp::detail::refuse(
      group, "allreduce",
      "prescale_factor and postscale_factor need a floating-point dtype, got a " + ddp::detail::describe(tensor));
}

}  // namespace

Context::Context(ProcessGroup group) : group_(std::move(group)) {}

Pending<at::Tensor> Context::allreduce_async_(at::Tensor tensor, const AllreduceOptions& options) const {
  ddp::detail::check_tensor(tensor, group_, "allreduce");
  check_factors(tensor, options, group_);
  const at::NoGradGuard no_grad;
  at::Tensor values = tensor.detach();
  multiply(values, options.prescale_factor);
  const auto rescale = [values, factor = options.postscale_factor]() mutable { multiply(values, factor); };
  if (options.op == Op::kAdasum) {
    // The rounds of Adasum depend on each other, so it runs synchronously, and the returned handle is already complete.
    adasum_allreduce({values}, group_);
    return all_reduce_coalesced_async({}, group_).then(std::move(tensor), rescale);
  }
  return all_reduce_async(values, group_, reduce_op(options.op, group_, "allreduce")).then(std::move(tensor), rescale);
}

at::Tensor Context::allreduce_(at::Tensor tensor, const AllreduceOptions& options) const {
  return allreduce_async_(std::move(tensor), options).wait();
}

Pending<at::Tensor> Context::allreduce_async(const at::Tensor& tensor, const AllreduceOptions& options) const {
  return allreduce_async_(copy_of(tensor, group_, "allreduce"), options);
}

at::Tensor Context::allreduce(const at::Tensor& tensor, const AllreduceOptions& options) const {
  return allreduce_(copy_of(tensor, group_, "allreduce"), options);
}

std::vector<at::Tensor> Context::grouped_allreduce(const std::vector<at::Tensor>& tensors,
                                                   const AllreduceOptions& options) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : tensors) {
    results.push_back(copy_of(tensor, group_, "grouped_allreduce"));
    check_factors(tensor, options, group_);
  }
  for (at::Tensor& result : results) multiply(result, options.prescale_factor);
  if (options.op == Op::kAdasum) {
    adasum_allreduce(results, group_);
  } else {
    all_reduce_coalesced(results, group_, reduce_op(options.op, group_, "allreduce"));
  }
  for (at::Tensor& result : results) multiply(result, options.postscale_factor);
  return results;
}

Pending<at::Tensor> Context::allgather_async(const at::Tensor& tensor) const {
  auto parts = all_gather_uneven_async(tensor, group_);
  at::Tensor joined = at::empty({0}, tensor.options().requires_grad(false));
  return std::move(parts).then<at::Tensor>(
      joined, [joined](const std::vector<at::Tensor>& values) mutable { at::cat_out(joined, values); });
}

at::Tensor Context::allgather(const at::Tensor& tensor) const {
  return at::cat(all_gather_uneven(tensor, group_));
}

Pending<at::Tensor> Context::broadcast_async_(at::Tensor tensor, int root) const {
  return ddp::broadcast_async(tensor, root, group_).then(tensor, [] {});
}

at::Tensor Context::broadcast_(at::Tensor tensor, int root) const {
  ddp::broadcast(tensor, root, group_);
  return tensor;
}

Pending<at::Tensor> Context::broadcast_async(const at::Tensor& tensor, int root) const {
  return broadcast_async_(copy_of(tensor, group_, "broadcast"), root);
}

at::Tensor Context::broadcast(const at::Tensor& tensor, int root) const {
  return broadcast_(copy_of(tensor, group_, "broadcast"), root);
}

at::Tensor Context::alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits) const {
  return splits.empty() ? all_to_all(tensor, group_) : all_to_all_uneven(tensor, splits, group_).tensor;
}

at::Tensor Context::reducescatter(const at::Tensor& tensor, Op op) const {
  return reduce_scatter(tensor, group_, reduce_op(op, group_, "reducescatter"));
}

void Context::barrier() const {
  ddp::barrier(group_);
}

std::string Context::broadcast_object(const std::string& object, int root) const {
  return broadcast_string(object, root, group_);
}

std::vector<std::string> Context::allgather_object(const std::string& object) const {
  return all_gather_strings(object, group_);
}

Context init(const ProcessGroupOptions& options) {
  return Context(init_process_group(options));
}

}  // namespace ddp::horovod
