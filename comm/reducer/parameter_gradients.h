// Internal: the gradients as autograd leaves them and as the optimizer finds them: in their buckets, without being
// autograd views of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ddprun/comm/wrapped_parameters.h>

#include "comm/reducer/bucket_tuning.h"

namespace ddp::detail {

/// A tensor on `view`'s memory that is no autograd view of it.
at::Tensor alias_of(const at::Tensor& view);

/// c10d::Reducer leaves gradients as views of its buckets, which optimizer.zero_grad() refuses to detach.
class ParameterGradients : public std::enable_shared_from_this<ParameterGradients> {
 public:
  /// `in_buckets`: the Reducer leaves them there, all of a bucket at once if `in_batches`. `tuning`, if any, is told
  /// the end of each backward.
  ParameterGradients(std::vector<at::Tensor> parameters, bool in_buckets, std::shared_ptr<BucketTuning> tuning,
                     bool in_batches = false);

  /// What happens to a parameter's gradient when it is complete. True: it lies in its bucket and is no view of it.
  using Reduce = std::function<bool(size_t parameter)>;

  /// Has autograd call `reduce` for each parameter, and marks the parameters as wrapped. Once.
  void follow_backward(Reduce reduce);
  /// Call before each forward.
  void before_forward();

  /// Replaces each gradient that is a view by a tensor on the same memory that is none; the same one from step to step
  /// while the bucket stays the same.
  void replace_views();
  /// Lets go of the buckets' memory.
  void forget();

 private:
  void after_accumulate(size_t parameter);
  void queue_end_of_backward();
  void end_of_backward();
  /// Whether it was one.
  bool replace_view(size_t parameter);

  std::vector<at::Tensor> parameters_;
  const bool in_buckets_;
  const bool in_batches_;
  const std::shared_ptr<BucketTuning> tuning_;
  std::vector<at::Tensor> aliases_;
  Reduce reduce_;
  std::atomic<bool> end_queued_{false};
  std::atomic<uint64_t> event_{0};  // of this backward in the timeline
  std::atomic<uint64_t> range_{0};  // the same on the device
  std::optional<WrappedParameters> hooks_;
};

}  // namespace ddp::detail
