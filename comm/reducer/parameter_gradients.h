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

#include <ddprun/detail/comm/wrapped_parameters.h>

#include "comm/reducer/bucket_tuning.h"

namespace ddp::detail {

/// A tensor on `view`'s memory that is not an autograd view of it.
at::Tensor alias_of(const at::Tensor& view);

/// c10d::Reducer leaves gradients as views of its buckets, which optimizer.zero_grad() refuses to detach.
class ParameterGradients : public std::enable_shared_from_this<ParameterGradients> {
 public:
  /// `in_buckets`: the Reducer leaves them there, all of a bucket at once if `in_batches`. `tuning`, if any, learns of
  /// the end of each backward.
  ParameterGradients(std::vector<at::Tensor> parameters, bool in_buckets, std::shared_ptr<BucketTuning> tuning,
                     bool in_batches = false);

  /// Receives what happens in a backward, in its threads. What it throws reaches the caller of backward().
  class Listener {
   public:
    virtual ~Listener() = default;
    /// p.grad() of `parameter` is complete. `incoming` is what autograd has accumulated into it; undefined where the
    /// loss does not depend on the parameter. Returns true when the gradient lies in its bucket and is not a view of
    /// it.
    virtual bool take(size_t parameter, const at::Tensor& incoming) = 0;
    /// All gradients have arrived and all started reductions are complete. `is_outermost`: not within another backward.
    /// Returns true to be called again after the callbacks that it has queued.
    virtual bool end_backward(bool is_outermost) = 0;
    /// A backward has thrown.
    virtual void abandon_backward() = 0;
    /// Whether a view that is p.grad() of `parameter` is one of its bucket, and not of the program's own memory.
    virtual bool is_in_bucket(size_t parameter, const at::Tensor& view) const = 0;
  };

  /// Has autograd call `listener`, and marks the parameters as wrapped. Once.
  void follow_backward(std::weak_ptr<Listener> listener);
  /// Call before each forward.
  void before_forward();
  /// Call in a backward before its first gradient: the end that is reported is that of this backward, not that of one
  /// within it.
  void begin_backward();

  /// The tensor on the memory of `view`, a part of `parameter`'s bucket, that is to be p.grad(): the same one from step
  /// to step while the bucket stays the same.
  const at::Tensor& alias(size_t parameter, const at::Tensor& view);
  /// The last one of these; undefined before.
  const at::Tensor& alias(size_t parameter) const { return aliases_[parameter]; }

  /// Replaces each gradient that is a view by a tensor on the same memory that is not a view; the same one from step to
  /// step while the bucket stays the same.
  void replace_views();
  /// Releases the buckets' memory.
  void forget();
  void forget(size_t parameter) { aliases_[parameter] = at::Tensor(); }
  /// Forgets alias() of `parameter` where it no longer lies on `view`, because the program has called set_data() of
  /// p.grad(): the tensor is the program's then. Returns whether it did.
  bool forget_moved(size_t parameter, const at::Tensor& view);

 private:
  class EndOfBackward;

  void after_accumulate(size_t parameter, const at::Tensor& incoming);
  void end_of_backward(std::shared_ptr<EndOfBackward> end);
  void close_backward();
  /// Whether it was one.
  bool replace_view(size_t parameter);

  std::vector<at::Tensor> parameters_;
  const bool in_buckets_;
  const bool in_batches_;
  const std::shared_ptr<BucketTuning> tuning_;
  std::vector<at::Tensor> aliases_;
  std::weak_ptr<Listener> listener_;
  std::atomic<bool> end_queued_{false};
  std::atomic<bool> has_gradients_{false};  // some have arrived in this backward
  std::atomic<uint64_t> event_{0};          // of this backward in the timeline
  std::atomic<uint64_t> range_{0};          // the same on the device
  std::optional<WrappedParameters> hooks_;
};

}  // namespace ddp::detail
