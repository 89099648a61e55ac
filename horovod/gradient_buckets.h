// Internal: all-reduces gradients in buckets while the backward still runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp::horovod {

/// The parameters of each bucket, as indices into a list of parameters.
using BucketPlan = std::vector<std::vector<size_t>>;

/// Splits `parameters` into buckets of one dtype and device each. The lists in `groups` are split separately. The other
/// parameters are split from the last to the first, which is about the order in which their gradients become ready,
/// into buckets of at most `max_bytes` (but at least one parameter). Buckets are in the order in which they can become
/// complete.
BucketPlan plan_buckets(const std::vector<at::Tensor>& parameters, const BucketPlan& groups, int64_t max_bytes);

/// Settings of GradientBuckets.
struct GradientBucketsOptions {
  bool average = true;            ///< average or sum
  double predivide_factor = 1.0;  ///< gradients are divided by it before the reduction and multiplied by it afterwards
  std::optional<at::ScalarType> wire_dtype{};  ///< dtype in which gradients are sent; default: their own dtype
  bool sparse_as_dense = false;                ///< convert sparse gradients to dense ones instead of refusing them
};

/// Reduces gradients over the ranks. Every rank starts the buckets in the order of the plan, independent of the order
/// in which gradients become ready, so that all ranks start the same operation. Not thread-safe.
class GradientBuckets {
 public:
  GradientBuckets(std::vector<at::Tensor> parameters, const BucketPlan& plan, GroupHandle group,
                  const GradientBucketsOptions& options);

  /// Copies the parameter's gradient. Then starts the complete buckets, in order, up to the first incomplete one.
  void gradient_ready(size_t parameter);
  /// Copies the missing gradients (zeros for a parameter without one), starts the remaining buckets, waits for all
  /// buckets, and stores the results in the gradients. The object is then ready for the next step, even after an
  /// exception.
  void finish();

 private:
  struct Bucket {
    std::vector<size_t> parameters{};
    std::vector<int64_t> offsets{};
    at::Tensor flat{};
    size_t ready = 0;
    std::optional<Pending<void>> pending{};
  };

  void take_gradient(size_t parameter);
  void start_complete_buckets();
  void put_back(const Bucket& bucket);
  void reset();

  const std::vector<at::Tensor> parameters_;
  const GroupHandle group_;
  const GradientBucketsOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // index: parameter; value: its bucket
  std::vector<size_t> place_of_;   // index: parameter; value: its position in the bucket
  std::vector<bool> taken_;        // index: parameter; value: whether its gradient was copied
  size_t started_ = 0;             // number of started buckets
};

}  // namespace ddp::horovod
