// The mean of a quantity over all samples of all ranks, such as the loss of an epoch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Adds up values weighted by the number of samples they stand for, so that batches and ranks of different sizes count
/// for what they are. Not safe for concurrent calls.
class Average {
 public:
  /// `mean` is the mean over `samples` samples.
  void update(double mean, int64_t samples = 1);
  /// The same for a tensor of one element on any device, which is not read: the host does not wait for it.
  void update(const at::Tensor& mean, int64_t samples = 1);

  /// Sum of all values over the number of samples, over all ranks; NaN without any sample. Every rank must call it,
  /// also one without a sample. Does not reset.
  double compute(const GroupHandle& group) const;

  /// What compute() divides.
  struct Totals {
    double sum = 0;
    double samples = 0;
    double mean() const;
  };
  /// Over all ranks; the difference of two is what came between them. Every rank must call it. Does not reset.
  Totals totals(const GroupHandle& group) const;

  void reset();

 private:
  double sum_ = 0;
  int64_t samples_ = 0;
  at::Tensor device_sum_{};  // float64 (), what tensors added
};

}  // namespace ddp
