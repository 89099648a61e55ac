// How often each class was taken for each other, and what follows from it: accuracy, IoU, Dice. For classification and,
// pixel by pixel, for segmentation in any number of dimensions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// A confusion matrix that is complete. Per-class results are NaN for a class that neither occurs nor was guessed;
/// means leave such classes out, and are NaN when no class is left.
struct ConfusionCounts {
  int64_t classes = 0;
  std::vector<int64_t> counts{};  ///< classes × classes, row by row: counts[right class * classes + guessed class]

  double accuracy() const;           ///< right guesses over all
  std::vector<double> iou() const;   ///< per class: TP / (TP + FP + FN), the Jaccard index
  std::vector<double> dice() const;  ///< per class: 2 TP / (2 TP + FP + FN), the F1 score
  double mean_iou() const;
  double mean_dice() const;
};

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

  void reset();

 private:
  int64_t classes_;
  ConfusionMatrixOptions options_;
  at::Tensor counts_{};  // int64 (classes²)
};

}  // namespace ddp
