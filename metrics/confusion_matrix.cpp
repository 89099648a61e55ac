#include <ATen/ops/bincount.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>

#include <ddprun/comm/collectives.h>

#include "ddprun/metrics/metrics.h"

namespace ddp {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMaxClasses = 32'768;  // the counts then use 8 GiB

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? kNaN : static_cast<double>(part) / static_cast<double>(whole);
}

double mean_of_finite(const std::vector<double>& values) {
  double sum = 0;
  int64_t count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kNaN : sum / static_cast<double>(count);
}

/// The counts of one class: correctly predicted samples of the class, all samples of the class, and all samples that
/// were predicted as the class.
struct ClassCounts {
  int64_t right = 0;
  int64_t actual = 0;
  int64_t guessed = 0;
};

ClassCounts counts_of(const ConfusionCounts& matrix, int64_t which) {
  ClassCounts found;
  for (int64_t other = 0; other < matrix.classes; ++other) {
    found.actual += matrix.counts[static_cast<size_t>(which * matrix.classes + other)];
    found.guessed += matrix.counts[static_cast<size_t>(other * matrix.classes + which)];
  }
  found.right = matrix.counts[static_cast<size_t>(which * matrix.classes + which)];
  return found;
}

bool is_integer(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

bool is_within(const at::Tensor& classes, int64_t count) {
  return classes.numel() == 0 || (classes.min().item<int64_t>() >= 0 && classes.max().item<int64_t>() < count);
}

}  // namespace

double ConfusionCounts::accuracy() const {
  int64_t right = 0;
  for (int64_t i = 0; i < classes; ++i) right += counts[static_cast<size_t>(i * classes + i)];
  return ratio(right, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

std::vector<double> ConfusionCounts::iou() const {
  std::vector<double> values;
  for (int64_t i = 0; i < classes; ++i) {
    const ClassCounts found = counts_of(*this, i);
    values.push_back(ratio(found.right, found.actual + found.guessed - found.right));
  }
  return values;
}

std::vector<double> ConfusionCounts::dice() const {
  std::vector<double> values;
  for (int64_t i = 0; i < classes; ++i) {
    const ClassCounts found = counts_of(*this, i);
    values.push_back(ratio(2 * found.right, found.actual + found.guessed));
  }
  return values;
}

double ConfusionCounts::mean_iou() const {
  return mean_of_finite(iou());
}

double ConfusionCounts::mean_dice() const {
  return mean_of_finite(dice());
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, const ConfusionMatrixOptions& options)
    : classes_(classes), options_(options) {
  if (classes < 1 || classes > kMaxClasses) {
    throw std::invalid_argument("ConfusionMatrix: expected 1 to " + std::to_string(kMaxClasses) + " classes, got " +
                                std::to_string(classes));
  }
}

void ConfusionMatrix::update(const at::Tensor& guess, const at::Tensor& target) {
  if (guess.sizes() != target.sizes() || !is_integer(guess) || !is_integer(target)) {
    std::ostringstream message;
    message << "ConfusionMatrix: expected two integer tensors of equal shape, got " << guess.scalar_type() << " "
            << guess.sizes() << " and " << target.scalar_type() << " " << target.sizes();
    throw std::invalid_argument(message.str());
  }
  at::Tensor guessed = guess.detach().reshape({-1}).to(at::kLong);
  at::Tensor actual = target.detach().reshape({-1}).to(at::kLong);
  if (options_.ignore_index) {
    const at::Tensor counts = actual.ne(*options_.ignore_index);
    guessed = guessed.masked_select(counts);
    actual = actual.masked_select(counts);
  }
  if (!is_within(guessed, classes_) || !is_within(actual, classes_)) {
    throw std::invalid_argument("ConfusionMatrix: a class is not within 0 to " + std::to_string(classes_ - 1));
  }
  const at::Tensor counts = at::bincount(actual.mul(classes_).add_(guessed), /*weights=*/{}, classes_ * classes_);
  counts_ = counts_.defined() ? counts_.add(counts) : counts;
}

ConfusionCounts ConfusionMatrix::compute(const GroupHandle& group) const {
  at::Tensor counts = counts_.defined()
                          ? counts_.to(group.device(), at::kLong, /*non_blocking=*/false, /*copy=*/true)
                          : at::zeros({classes_ * classes_}, at::TensorOptions(group.device()).dtype(at::kLong));
  all_reduce(counts, group);
  const at::Tensor result = counts.to(at::kCPU);
  const int64_t* values = result.const_data_ptr<int64_t>();
  return {.classes = classes_, .counts = std::vector<int64_t>(values, values + classes_ * classes_)};
}

void ConfusionMatrix::reset() {
  counts_ = at::Tensor();
}

}  // namespace ddp
