// Metrics over the samples of all ranks: the mean of a quantity such as the loss, accuracy, a confusion matrix with IoU
// and Dice, samples per second.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Adds up values weighted by the number of samples that each represents, so batches of different sizes, and ranks with
/// different numbers of samples, have the right weight. Not safe for concurrent calls.
class Average {
 public:
  /// `mean` is the mean over `samples` samples.
  void update(double mean, int64_t samples = 1);
  /// The same for a tensor of one element on any device. The value is not read, so the host does not wait for the
  /// device.
  void update(const at::Tensor& mean, int64_t samples = 1);

  /// Sum of all values over the number of samples, over all ranks; NaN without any sample. Every rank must call it,
  /// also one without a sample. Does not reset.
  double compute(const GroupHandle& group) const;

  /// The numerator and denominator of compute().
  struct Totals {
    double sum = 0;      ///< of the values, each times its samples
    double samples = 0;  ///< number of samples
    /// sum / samples; NaN without any sample.
    double mean() const;
  };
  /// The totals over all ranks. The difference between two results is what was added between the two calls. Every rank
  /// must call it. Does not reset.
  Totals totals(const GroupHandle& group) const;

  /// Discards all values.
  void reset();

 private:
  double sum_ = 0;
  int64_t samples_ = 0;
  at::Tensor device_sum_{};  // float64 (), what tensors added
};

/// The number of samples of all ranks, and how many of them were predicted correctly.
struct AccuracyCounts {
  std::vector<int64_t> right{};  ///< for each k
  int64_t samples = 0;           ///< of all ranks
};

/// Counts in whole numbers on the device of the predictions, so nothing is rounded and the host does not wait.
class Accuracy {
 public:
  /// Measures the top-k accuracy for each of these k, usually {1} or {1, 5}. Throws std::invalid_argument for a k below
  /// 1 or an empty list.
  explicit Accuracy(std::vector<int64_t> top_k = {1});

  /// `scores`: float (N, classes), the greater the likelier; `target`: int64 (N), the right classes. If k = 1 is the
  /// only one, the prediction is argmax(1): the first of several equal scores. Throws std::invalid_argument naming the
  /// shapes when they don't fit or there are fewer classes than a k.
  void update(const at::Tensor& scores, const at::Tensor& target);

  /// For each k the fraction of right samples over all ranks, 0 to 1; NaN without any sample. Every rank must call it,
  /// also one without a sample. Does not reset.
  std::vector<double> compute(const GroupHandle& group) const;
  /// The same as whole numbers.
  AccuracyCounts counts(const GroupHandle& group) const;

  /// Discards all values.
  void reset();

 private:
  std::vector<int64_t> top_k_;
  at::Tensor counts_{};  // int64 (top_k + 1): right ones for each k, then samples
};

/// The counts of a confusion matrix over all ranks. A per-class result is NaN for a class that neither occurs nor was
/// predicted. Means leave out such classes, and are NaN if no class remains.
struct ConfusionCounts {
  int64_t classes = 0;            ///< number of classes
  std::vector<int64_t> counts{};  ///< classes × classes, row by row: counts[right class * classes + guessed class]

  double accuracy() const;           ///< right guesses over all
  std::vector<double> iou() const;   ///< per class: TP / (TP + FP + FN), the Jaccard index
  std::vector<double> dice() const;  ///< per class: 2 TP / (2 TP + FP + FN), the F1 score
  double mean_iou() const;           ///< mean of iou() over the classes that occur
  double mean_dice() const;          ///< mean of dice() over the classes that occur
};

/// Settings of a ConfusionMatrix, all optional.
struct ConfusionMatrixOptions {
  std::optional<int64_t> ignore_index{};  ///< samples whose right class is this do not count
};

/// Counts in whole numbers, so the result over ranks is exact.
class ConfusionMatrix {
 public:
  /// Throws std::invalid_argument for fewer than 1 or more than 32,768 classes.
  explicit ConfusionMatrix(int64_t classes, const ConfusionMatrixOptions& options = {});

  /// `guess` and `target`: integer tensors of equal shape with classes 0 … classes-1, on one device. (Of scores
  /// (N, C, …) the guess is argmax(1).) Throws std::invalid_argument for another shape and for a class out of range,
  /// and then counts nothing.
  void update(const at::Tensor& guess, const at::Tensor& target);

  /// The counts of all ranks. Every rank must call it. Does not reset.
  ConfusionCounts compute(const GroupHandle& group) const;

  /// Discards all values.
  void reset();

 private:
  int64_t classes_;
  ConfusionMatrixOptions options_;
  at::Tensor counts_{};  // int64 (classes²)
};

/// Samples per second since the construction or the last reset().
class Throughput {
 public:
  /// Adds `samples` that this rank has used.
  void update(int64_t samples) { samples_ += samples; }

  /// This rank's samples per second until now.
  double per_second() const;

  /// All ranks' samples over the longest time that a rank took. Every rank must call it.
  double compute(const GroupHandle& group) const;

  /// Begins to count from 0.
  void reset();

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const;

  int64_t samples_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace ddp
