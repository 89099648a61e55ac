#include <ATen/TensorOperators.h>
#include <ATen/ops/one_hot.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "ddprun/data/transforms.h"

namespace ddp::transforms {
namespace {

void check(const MixOptions& options, const char* what) {
  if (options.alpha > 0 && std::isfinite(options.alpha) && options.classes > 0) return;
  throw std::invalid_argument(std::string(what) + ": expected a number of classes and an alpha above 0, got " +
                              std::to_string(options.classes) + " and " + std::to_string(options.alpha));
}

at::Tensor as_probabilities(const at::Tensor& target, int64_t classes) {
  if (target.dim() == 1 && target.scalar_type() == at::kLong) {
    const auto is_class = (target >= 0).logical_and(target < classes);
    if (!is_class.all().item<bool>()) {
      const auto other = target.masked_select(is_class.logical_not())[0].item<int64_t>();
      throw std::invalid_argument("mixup: expected class indices from 0 to " + std::to_string(classes - 1) + ", got " +
                                  std::to_string(other));
    }
    return at::one_hot(target, classes).to(at::kFloat);
  }
  if (target.dim() == 2 && target.size(1) == classes && target.is_floating_point()) return target;
  throw std::invalid_argument("mixup: expected class indices, int64 (B), or probabilities, float (B, " +
                              std::to_string(classes) + ")");
}

at::Tensor mixed(const at::Tensor& values, double part) {
  return values.roll(1, 0) * (1 - part) + values * part;
}

// Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000. For alpha below 1, uses their note about
// alpha + 1.
double draw_gamma(double alpha, SampleRandom& random) {
  if (alpha < 1) {
    const double boost = std::pow(1 - random.uniform(), 1 / alpha);
    return boost * draw_gamma(alpha + 1, random);
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * random.uniform());
    const double v = std::pow(1 + c * normal, 3);
    if (v > 0 && std::log(1 - random.uniform()) < normal * normal / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace

double draw_beta(double alpha, SampleRandom& random) {
  const double a = draw_gamma(alpha, random), b = draw_gamma(alpha, random);
  return a + b > 0 ? a / (a + b) : 0.5;  // with very small alphas both may be 0
}

Batch mix(const Batch& batch, double part, int64_t classes) {
  return {.data = mixed(batch.data, part), .target = mixed(as_probabilities(batch.target, classes), part)};
}

BatchTransform mixup(const MixOptions& options) {
  check(options, "mixup");
  return [options](const Batch& batch, SampleRandom& random) {
    return mix(batch, draw_beta(options.alpha, random), options.classes);
  };
}

BatchTransform cutmix(const MixOptions& options) {
  check(options, "cutmix");
  return [options](const Batch& batch, SampleRandom& random) {
    if (batch.data.dim() != 4) throw std::invalid_argument("cutmix: expected images of shape (B, C, H, W)");
    const int64_t height = batch.data.size(2), width = batch.data.size(3);
    const double half = 0.5 * std::sqrt(1 - draw_beta(options.alpha, random));
    const int64_t x = random.below(static_cast<uint64_t>(width)), y = random.below(static_cast<uint64_t>(height));
    const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
    const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
    const int64_t left = std::max(x - half_width, int64_t{0}), right = std::min(x + half_width, width);
    const int64_t top = std::max(y - half_height, int64_t{0}), bottom = std::min(y + half_height, height);
    Batch result{.data = batch.data.clone(), .target = {}};
    const auto box = [&](const at::Tensor& images) {
      return images.narrow(2, top, bottom - top).narrow(3, left, right - left);
    };
    box(result.data).copy_(box(batch.data.roll(1, 0)));
    // The fraction of pixels that remains.
    const double part = 1 - static_cast<double>((right - left) * (bottom - top)) / static_cast<double>(width * height);
    result.target = mixed(as_probabilities(batch.target, options.classes), part);
    return result;
  };
}

}  // namespace ddp::transforms
