#include "ddprun/horovod/context.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <stdexcept>
#include <utility>

#include <ddprun/comm/collectives.h>
#include <ddprun/horovod/adasum.h>

#include "comm/group/multiply.h"

namespace ddp::horovod {
namespace {

ReduceOp reduce_op(Op op) {
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
  throw std::invalid_argument("Adasum is defined for allreduce and the optimizer only");
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

}  // namespace

Context::Context(ProcessGroup group) : group_(std::move(group)) {}

Pending<at::Tensor> Context::allreduce_async_(at::Tensor tensor, const AllreduceOptions& options) const {
  const at::NoGradGuard no_grad;
  at::Tensor values = tensor.detach();
  multiply(values, options.prescale_factor);
  const auto rescale = [values, factor = options.postscale_factor]() mutable { multiply(values, factor); };
  if (options.op == Op::kAdasum) {
    // Its rounds depend on each other: done at once, the handle is complete.
    adasum_allreduce({values}, group_);
    return all_reduce_coalesced_async({}, group_).then(std::move(tensor), rescale);
  }
  return all_reduce_async(values, group_, reduce_op(options.op)).then(std::move(tensor), rescale);
}

at::Tensor Context::allreduce_(at::Tensor tensor, const AllreduceOptions& options) const {
  return allreduce_async_(std::move(tensor), options).wait();
}

Pending<at::Tensor> Context::allreduce_async(const at::Tensor& tensor, const AllreduceOptions& options) const {
  return allreduce_async_(copy_of(tensor), options);
}

at::Tensor Context::allreduce(const at::Tensor& tensor, const AllreduceOptions& options) const {
  return allreduce_(copy_of(tensor), options);
}

std::vector<at::Tensor> Context::grouped_allreduce(const std::vector<at::Tensor>& tensors,
                                                   const AllreduceOptions& options) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : tensors) results.push_back(copy_of(tensor));
  for (at::Tensor& result : results) multiply(result, options.prescale_factor);
  if (options.op == Op::kAdasum) {
    adasum_allreduce(results, group_);
  } else {
    all_reduce_coalesced(results, group_, reduce_op(options.op));
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
  return broadcast_async_(copy_of(tensor), root);
}

at::Tensor Context::broadcast(const at::Tensor& tensor, int root) const {
  return broadcast_(copy_of(tensor), root);
}

at::Tensor Context::alltoall(const at::Tensor& tensor, const std::vector<int64_t>& splits) const {
  return splits.empty() ? all_to_all(tensor, group_) : all_to_all_uneven(tensor, splits, group_).tensor;
}

at::Tensor Context::reducescatter(const at::Tensor& tensor, Op op) const {
  return reduce_scatter(tensor, group_, reduce_op(op));
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
