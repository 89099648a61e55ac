// What a communication hook of DistributedDataParallel sees and returns. Reference: torch.distributed.GradBucket and
// torch.distributed.algorithms.ddp_comm_hooks.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace c10d {
class GradBucket;
}

namespace ddp {

/// A tensor that is still being computed or communicated.
using TensorFuture = c10::intrusive_ptr<c10::ivalue::Future>;

/// Gradients that are reduced together. The object is valid only during the hook's call; the hook may keep its tensors.
class GradientBucket {
 public:
  /// `parameters`: the parameters of the bucket, in the order of its gradients.
  GradientBucket(c10d::GradBucket& bucket, std::vector<at::Tensor> parameters);

  /// The number of this bucket in the step, beginning with 0. All ranks see the same buckets in the same order.
  size_t index() const;
  /// True for the bucket that completes the step.
  bool is_last() const;
  /// The gradients of the bucket, flattened into one dimension and not divided by anything yet. For a sparse gradient,
  /// the gradient itself.
  const at::Tensor& buffer() const;
  /// Replaces the tensor that buffer() returns; for hooks that wrap other hooks.
  void set_buffer(at::Tensor buffer);
  /// The gradients one by one: views into buffer() in their parameters' shapes. As in Python, if a parameter is not
  /// contiguous (channels_last), the elements of its gradient are in the order of the parameter's memory, not of its
  /// indices.
  std::vector<at::Tensor> gradients() const;
  /// The bucket's parameters, in the order of gradients().
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  c10d::GradBucket& bucket_;
  std::vector<at::Tensor> parameters_;
};

/// Reduces one bucket: starts what is necessary and returns the future of the tensor that replaces buffer(), of the
/// same size. Called in the backward thread, bucket after bucket; every rank must start the same collectives in the
/// same order, so on gloo a hook must not start a collective in a future's callback. If the hook throws, this rank's
/// backward throws.
using CommHook = std::function<TensorFuture(GradientBucket& bucket)>;

/// Gives `hook` a name. The ranks compare the names in the first backward, and DdpLoggingData::comm_hook has the name.
/// The hooks in ddp::hooks have names already. Throws std::invalid_argument for an empty hook or name.
CommHook named_hook(std::string name, CommHook hook);
/// The name that named_hook() gave the hook; "custom" for a hook without a name; "" for an empty hook.
std::string hook_name(const CommHook& hook);

/// Starts the sum of `tensor` over the ranks, in place, and returns its future. Every rank must call it. If the
/// collective fails, the future has an error that names the rank, the collective and the ranks that did not take part.
/// Do not hold a lock while waiting for it.
TensorFuture all_reduce_future(at::Tensor tensor, const GroupHandle& group);

/// A future that already holds `tensor`.
TensorFuture completed_future(at::Tensor tensor);

/// Returns a future of `next(value of future)`. On CUDA `next` runs at once, on a stream that waits for the value. On
/// the CPU it runs when the value is ready, in the backend's thread, so it must not block.
TensorFuture then(const TensorFuture& future, std::function<at::Tensor(const at::Tensor& value)> next);

}  // namespace ddp
