// Which part of the samples has the right class among its k best guesses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// How many samples of all ranks there were, and how many of them were right.
struct AccuracyCounts {
  std::vector<int64_t> right{};  ///< for each k
  int64_t samples = 0;
};

/// Counts in whole numbers on the device of the predictions, so nothing is rounded and the host does not wait.
class Accuracy {
 public:
  /// For each of these k, usually {1} or {1, 5}. Throws std::invalid_argument for a k below 1 or none.
  explicit Accuracy(std::vector<int64_t> top_k = {1});

  /// `scores`: float (N, classes), the greater the likelier; `target`: int64 (N), the right classes. For k = 1 alone
  /// the guess is argmax(1): of equal scores the first. Throws std::invalid_argument naming the shapes when they don't
  /// fit or there are fewer classes than a k.
  void update(const at::Tensor& scores, const at::Tensor& target);

  /// For each k the fraction of right samples over all ranks, 0 to 1; NaN without any sample. Every rank must call it,
  /// also one without a sample. Does not reset.
  std::vector<double> compute(const GroupHandle& group) const;
  /// The same as whole numbers.
  AccuracyCounts counts(const GroupHandle& group) const;

  void reset();

 private:
  std::vector<int64_t> top_k_;
  at::Tensor counts_{};  // int64 (top_k + 1): right ones for each k, then samples
};

}  // namespace ddp
