// Internal: all-reduce of gradients while backward still runs, bucket by bucket.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp::horovod {

/// Which parameters share a message: indices into a list of parameters.
using BucketPlan = std::vector<std::vector<size_t>>;

/// Splits `parameters` into buckets of one dtype and device each: the lists in `groups` by themselves, the rest from
/// the last parameter to the first, whose order is about that in which gradients become ready, into pieces of at most
/// `max_bytes` (at least one parameter each). Buckets follow each other in the order in which they can become complete.
BucketPlan plan_buckets(const std::vector<at::Tensor>& parameters, const BucketPlan& groups, int64_t max_bytes);

/// Settings of GradientBuckets.
struct GradientBucketsOptions {
  bool average = true;                         ///< else the sum
  double predivide_factor = 1.0;               ///< divides before the reduction, multiplies after it
  std::optional<at::ScalarType> wire_dtype{};  ///< dtype in which gradients travel; default: their own
  bool sparse_as_dense = false;                ///< accept sparse gradients, as dense ones; else they are refused
};

/// Reduces gradients over the ranks. Buckets start in the order of the plan on every rank, whatever the order in which
/// gradients become ready, so that all ranks start the same operation. Not thread-safe.
class GradientBuckets {
 public:
  GradientBuckets(std::vector<at::Tensor> parameters, const BucketPlan& plan, GroupHandle group,
                  const GradientBucketsOptions& options);

  /// Copies the parameter's gradient, and starts every bucket that is next in order and complete.
  void gradient_ready(size_t parameter);
  /// Copies the missing gradients (zeros for a parameter without one), starts the remaining buckets, waits for all, and
  /// stores the results in the gradients. Afterwards, also when it throws, the object is ready for the next step.
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
  std::vector<size_t> bucket_of_;  // by parameter
  std::vector<size_t> place_of_;   // by parameter: position in its bucket
  std::vector<bool> taken_;        // by parameter
  size_t started_ = 0;             // buckets
};

}  // namespace ddp::horovod
