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

/// Gradients that are reduced together. Valid during the hook's call only; its tensors may be kept.
class GradientBucket {
 public:
  /// `parameters`: those of the bucket, in the order of its gradients.
  GradientBucket(c10d::GradBucket& bucket, std::vector<at::Tensor> parameters);

  /// Which bucket of the step it is, 0 first. All ranks see the same buckets in the same order.
  size_t index() const;
  /// True for the bucket that completes the step.
  bool is_last() const;
  /// The gradients of the bucket, flattened into one dimension and not divided by anything yet. For a sparse gradient,
  /// the gradient itself.
  const at::Tensor& buffer() const;
  /// Makes `buffer` what later readers of this bucket see; for hooks that wrap others.
  void set_buffer(at::Tensor buffer);
  /// The gradients one by one: views into buffer() in their parameters' shapes. As in Python the elements of one whose
  /// parameter is not contiguous (channels_last) come in the order of its memory, not in that of its indices.
  std::vector<at::Tensor> gradients() const;
  /// The bucket's parameters, in the order of gradients().
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  c10d::GradBucket& bucket_;
  std::vector<at::Tensor> parameters_;
};

/// Reduces one bucket: starts what is necessary and returns the future of the tensor that replaces buffer(), of the
/// same size. Called in the backward thread, bucket after bucket; every rank must start the same collectives in the
/// same order, so a hook must not start any from a future's callback on gloo. What it throws fails this rank's
/// backward.
using CommHook = std::function<TensorFuture(GradientBucket& bucket)>;

/// `hook` under a name: the ranks compare it in the first backward, and it is DdpLoggingData::comm_hook. Those of
/// ddp::hooks have theirs. Throws std::invalid_argument for an empty hook or name.
CommHook named_hook(std::string name, CommHook hook);
/// The name that named_hook() gave; "custom" where it gave none; "" for an empty hook.
std::string hook_name(const CommHook& hook);

/// Starts the sum of `tensor` over the ranks, in place, and returns its future. Every rank must call it. The future
/// fails with a message that names the rank, the collective and who did not take part. Hold no lock while waiting.
TensorFuture all_reduce_future(at::Tensor tensor, const GroupHandle& group);

/// A future that already holds `tensor`.
TensorFuture completed_future(at::Tensor tensor);

/// The future of `next(value of future)`. On CUDA `next` runs at once, on a stream that waits for the value; on the CPU
/// when the value is there, in the backend's thread: it must not block.
TensorFuture then(const TensorFuture& future, std::function<at::Tensor(const at::Tensor& value)> next);

}  // namespace ddp
