// The distribution of a set of values, in TensorBoard's buckets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

/// Buckets hold the values from the limit of the bucket before (inclusive) to their own limit (exclusive).
struct Histogram {
  double min = 0;
  double max = 0;
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits{};  ///< right limit of each bucket, rising
  std::vector<double>
      counts{};  ///< as many as limits; the first and the last non-empty bucket are kept, and one before
};

/// Buckets that grow by 10 % from 1e-12 to 1e20 on both sides of 0, which is what torch.utils.tensorboard does by
/// default. NaN and infinite values are left out; values beyond the outermost limits count in the outermost buckets.
/// Without any finite value everything is 0 and there is one empty bucket.
Histogram make_histogram(std::span<const float> values);
Histogram make_histogram(std::span<const double> values);
Histogram make_histogram(std::span<const int64_t> values);

}  // namespace ddp
