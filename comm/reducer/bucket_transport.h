// Internal: how a bucket of gradients is summed over the ranks: the group's all-reduce or a communication
// hook.
#pragma once

#include <ATen/core/ivalue.h>

#include <ddprun/comm/gradient_bucket.h>

namespace ddp::detail {

/// Carries one bucket; ReductionContext::reduce() calls both. What they throw names the rank, and is noted.
class BucketTransport {
 public:
  virtual ~BucketTransport() = default;

  /// Starts without waiting for other ranks, in the backward thread, in the same order on every rank. Returns the
  /// future after which finish() does not wait; null where only finish() knows.
  virtual TensorFuture start() = 0;

  /// Ends it: what c10d::Reducer takes for the future's value. Called once: with start()'s future in the thread that
  /// completes it, or else with null and in the backward thread, where it may wait. Not called for a future with
  /// devices, which order what follows by themselves.
  virtual c10::IValue finish(c10::ivalue::Future* arrived) = 0;
};

}  // namespace ddp::detail
