// The engine under DistributedDataParallel: bucketed gradient reduction overlapped with backward. The work is done by
// LibTorch's c10d::Reducer, the one under Python's DDP, so results are the same bits; this header hides it, because its
// C++ interface changes between versions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"

namespace ddp {

/// Settings of GradientReducer.
struct GradientReducerOptions {
  int64_t bucket_cap_bytes = int64_t{25} << 20;  ///< gradients of a bucket are reduced together
  int64_t first_bucket_bytes = int64_t{1}
                               << 20;   ///< cap of the bucket that is ready first, so that reduction starts early
  bool gradient_as_bucket_view = true;  ///< gradients lie in the buckets: no copy back
};

/// Averages the gradients of a list of parameters over a group's ranks during backward.
class GradientReducer {
 public:
  /// Hooks into the gradients of `parameters` (leaves that require gradients, no duplicates; all ranks need the same
  /// shapes and dtypes in the same order, see verify_parameters()). `names` are theirs, for messages. Construct it
  /// under the stream on which the forwards will run. Not a collective by itself.
  GradientReducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names, const GroupHandle& group,
                  const GradientReducerOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Call before each forward that records gradients. After the first reducing backward it regroups the buckets in the
  /// order in which gradients became ready, which is a broadcast from rank 0, on all ranks; as in Python's DDP also
  /// when this forward's backward will not reduce.
  void before_forward(bool will_reduce);
  /// Call after each forward whose backward shall reduce; leave it out to accumulate gradients locally. Throws
  /// std::runtime_error (with c10d's text) when the previous backward did not reach every parameter.
  void after_forward();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // autograd hooks hold weak references to it
};

/// Compares number, shapes, strides and dtypes of the parameters with rank 0's. Every rank must call it; throws
/// std::runtime_error on every rank that differs, with what differs.
void verify_parameters(const std::vector<at::Tensor>& parameters, const GroupHandle& group);

}  // namespace ddp
