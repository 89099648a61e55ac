#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

#include "ddprun/data/transforms.h"

namespace ddp::transforms {

void detail::check_probability(double probability) {
  if (probability >= 0 && probability <= 1) return;
  throw std::invalid_argument("Invalid probability " + std::to_string(probability) + ", it should be in [0, 1]");
}

namespace {

using detail::check_probability;

void check_picture(const at::Tensor& image, const char* what) {
  if (image.dim() == 3) return;
  throw std::invalid_argument(std::string(what) + ": expected a picture (channels, height, width), got a tensor of " +
                              std::to_string(image.dim()) + " dimensions");
}

Transform random_flip(double probability, int64_t dim) {
  check_probability(probability);
  return [probability, dim](const at::Tensor& image, SampleRandom& random) {
    return random.uniform() < probability ? image.flip({dim}) : image;
  };
}

at::Tensor cut(const at::Tensor& image, int64_t top, int64_t left, int64_t size) {
  return image.narrow(-2, top, size).narrow(-1, left, size);
}

void check_crop(const at::Tensor& image, int64_t size, const char* what) {
  check_picture(image, what);
  if (image.size(1) >= size && image.size(2) >= size) return;
  throw std::invalid_argument(std::string(what) + ": cannot cut " + std::to_string(size) +
                              " pixels out of a picture of " + std::to_string(image.size(1)) + " x " +
                              std::to_string(image.size(2)));
}

// Returns the source position of each pixel of the rotated picture, with the same arithmetic as torchvision.
at::Tensor rotation_grid(double degrees, int64_t height, int64_t width) {
  // Rounded like torchvision's matrix, which is the inverse of a rotation by -degrees.
  const double angle = -degrees * std::numbers::pi / 180;
  const auto theta = at::tensor({std::cos(angle), std::sin(angle), 0.0, -std::sin(angle), std::cos(angle), 0.0})
                         .to(at::kFloat)
                         .reshape({1, 2, 3});
  const auto w = static_cast<double>(width), h = static_cast<double>(height);
  const auto base = at::empty({1, height, width, 3}, at::kFloat);
  base.select(-1, 0).copy_(at::linspace(-w * 0.5 + 0.5, w * 0.5 + 0.5 - 1, width));
  base.select(-1, 1).copy_(at::linspace(-h * 0.5 + 0.5, h * 0.5 + 0.5 - 1, height).unsqueeze(-1));
  base.select(-1, 2).fill_(1);
  const auto scaled = theta.transpose(1, 2) / at::tensor({0.5 * w, 0.5 * h}).to(at::kFloat);
  return at::bmm(base.view({1, height * width, 3}), scaled).view({1, height, width, 2});
}

std::vector<double> normal_numbers(int64_t count, SampleRandom& random) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) {  // the Box-Muller transform
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    value = radius * std::cos(2 * std::numbers::pi * random.uniform());
  }
  return values;
}

void check_erasing(const RandomErasingOptions& options) {
  check_probability(options.probability);
  const bool has_area = options.least_area > 0 && options.least_area <= options.most_area && options.most_area <= 1;
  const bool has_ratio = options.least_ratio > 0 && options.least_ratio <= options.most_ratio;
  if (has_area && has_ratio && std::isfinite(options.most_ratio)) return;
  throw std::invalid_argument(
      "random_erasing: expected 0 < least_area <= most_area <= 1 and 0 < least_ratio <= most_ratio, got areas " +
      std::to_string(options.least_area) + ", " + std::to_string(options.most_area) + " and ratios " +
      std::to_string(options.least_ratio) + ", " + std::to_string(options.most_ratio));
}

}  // namespace

Transform random_horizontal_flip(double probability) {
  return random_flip(probability, -1);
}
Transform random_vertical_flip(double probability) {
  return random_flip(probability, -2);
}

at::Tensor rotate(const at::Tensor& image, double degrees, const RotationOptions& options) {
  check_picture(image, "rotate");
  if (!image.is_floating_point()) {
    throw std::invalid_argument(std::string("rotate: expected a picture of floating-point numbers, got one of ") +
                                c10::toString(image.scalar_type()) + ": convert it with to(torch::kFloat)");
  }
  const auto grid = rotation_grid(degrees, image.size(1), image.size(2)).to(image.scalar_type());
  // A channel of ones is used to detect pixels from outside of the picture.
  const auto inside = at::ones({1, image.size(1), image.size(2)}, image.options());
  constexpr int64_t kBilinear = 0, kNearest = 1, kZeros = 0;
  const auto turned = at::grid_sampler_2d(at::cat({image, inside}).unsqueeze(0), grid,
                                          options.bilinear ? kBilinear : kNearest, kZeros, /*align_corners=*/false)
                          .squeeze(0);
  const auto pixels = turned.narrow(0, 0, image.size(0));
  const auto mask = turned.narrow(0, image.size(0), 1);
  if (options.bilinear) return pixels * mask + (1 - mask) * options.fill;
  return at::where(mask < 0.5, at::tensor(options.fill).to(image.scalar_type()), pixels);
}

Transform random_rotation(const RotationOptions& options) {
  if (!(options.degrees >= 0) || !std::isfinite(options.degrees)) {
    throw std::invalid_argument("Invalid rotation by up to " + std::to_string(options.degrees) +
                                " degrees, it should be finite and not negative");
  }
  return [options](const at::Tensor& image, SampleRandom& random) {
    return rotate(image, random.uniform(-options.degrees, options.degrees), options);
  };
}

Transform random_crop(const RandomCropOptions& options) {
  if (options.size < 1 || options.padding < 0) {
    throw std::invalid_argument("random_crop: expected a size above 0 and no negative padding, got " +
                                std::to_string(options.size) + " and " + std::to_string(options.padding));
  }
  return [options](const at::Tensor& image, SampleRandom& random) {
    const int64_t padding = options.padding;
    const auto padded =
        padding == 0 ? image : at::constant_pad_nd(image, {padding, padding, padding, padding}, options.fill);
    check_crop(padded, options.size, "random_crop");
    const auto begin = [&](int64_t dim) {
      return random.below(static_cast<uint64_t>(padded.size(dim) - options.size + 1));
    };
    const int64_t top = begin(1);
    return cut(padded, top, begin(2), options.size);
  };
}

Transform center_crop(int64_t size) {
  if (size < 1) throw std::invalid_argument("center_crop: expected a size above 0, got " + std::to_string(size));
  return [size](const at::Tensor& image) {
    check_crop(image, size, "center_crop");
    // Halves are rounded to even, as in Python's round().
    const auto begin = [&](int64_t side) {
      return static_cast<int64_t>(std::nearbyint(static_cast<double>(side - size) / 2));
    };
    return cut(image, begin(image.size(1)), begin(image.size(2)), size);
  };
}

Box draw_erased(int64_t height, int64_t width, const RandomErasingOptions& options, SampleRandom& random) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double erased = area * random.uniform(options.least_area, options.most_area);
    const double ratio = std::exp(random.uniform(std::log(options.least_ratio), std::log(options.most_ratio)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(erased * ratio)));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(erased / ratio)));
    if (h >= height || w >= width) continue;
    const int64_t top = random.below(static_cast<uint64_t>(height - h + 1));
    return {.top = top, .left = random.below(static_cast<uint64_t>(width - w + 1)), .height = h, .width = w};
  }
  return {};
}

Transform random_erasing(const RandomErasingOptions& options) {
  check_erasing(options);
  return [options](const at::Tensor& image, SampleRandom& random) {
    check_picture(image, "random_erasing");
    if (random.uniform() >= options.probability) return image;
    const Box box = draw_erased(image.size(1), image.size(2), options, random);
    const auto result = image.clone();
    const auto part = result.narrow(1, box.top, box.height).narrow(2, box.left, box.width);
    if (options.noise) {
      part.copy_(at::tensor(normal_numbers(part.numel(), random)).reshape(part.sizes()));
    } else {
      part.fill_(options.value);
    }
    return result;
  };
}

Transform normalize(std::vector<double> mean, std::vector<double> stddev) {
  if (mean.size() != stddev.size() || mean.empty() ||
      !std::ranges::all_of(stddev, [](double value) { return value > 0; })) {
    throw std::invalid_argument("normalize: expected as many means as deviations, and deviations above 0, got " +
                                std::to_string(mean.size()) + " and " + std::to_string(stddev.size()));
  }
  const auto as_channels = [](const std::vector<double>& values) {
    return at::tensor(values).to(at::kFloat).view({-1, 1, 1});
  };
  return [mean = as_channels(mean), stddev = as_channels(stddev)](const at::Tensor& image) {
    check_picture(image, "normalize");
    if (mean.size(0) != 1 && mean.size(0) != image.size(0)) {
      throw std::invalid_argument("normalize: expected " + std::to_string(mean.size(0)) + " channels, got " +
                                  std::to_string(image.size(0)));
    }
    return (image - mean) / stddev;
  };
}

}  // namespace ddp::transforms
