#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "ddprun/data/image.h"

namespace ddp {

Box draw_resized_crop(int64_t height, int64_t width, SampleRandom& random) {
  constexpr double kMinArea = 0.08;
  constexpr double kMinRatio = 3.0 / 4;
  constexpr double kMaxRatio = 4.0 / 3;
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(kMinArea, 1.0);
    const double ratio = std::exp(random.uniform(std::log(kMinRatio), std::log(kMaxRatio)));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(target * ratio)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(target / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int64_t top = random.below(static_cast<uint64_t>(height - h + 1));
    return {.top = top, .left = random.below(static_cast<uint64_t>(width - w + 1)), .height = h, .width = w};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  Box box{.height = height, .width = width};
  if (ratio < kMinRatio) box.height = static_cast<int64_t>(std::nearbyint(static_cast<double>(width) / kMinRatio));
  if (ratio > kMaxRatio) box.width = static_cast<int64_t>(std::nearbyint(static_cast<double>(height) * kMaxRatio));
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

ResizedPart centre_part(int64_t height, int64_t width, int64_t shorter_side, int64_t size) {
  const int64_t least = std::min(height, width);
  // The longer side is rounded down, as in torchvision.
  const auto scaled = [&](int64_t side) { return side == least ? shorter_side : shorter_side * side / least; };
  if (least < 1 || size < 1 || size > shorter_side) {
    throw std::invalid_argument("cannot crop " + std::to_string(size) + " pixels out of a side of " +
                                std::to_string(shorter_side));
  }
  const int64_t scaled_height = scaled(height);
  const int64_t scaled_width = scaled(width);
  // Halves are rounded to even, as in Python's round().
  const auto begin = [&](int64_t side) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(side - size) / 2));
  };
  return {.box = {.height = height, .width = width},
          .height = scaled_height,
          .width = scaled_width,
          .part = {.top = begin(scaled_height), .left = begin(scaled_width), .height = size, .width = size}};
}

Image resize_and_crop_centre(const Image& image, int64_t shorter_side, int64_t size) {
  // Only this part is computed: for a picture that is a thousand times as long as it is wide, the rest would need a
  // thousand times as much work.
  const ResizedPart centre = centre_part(image.height, image.width, shorter_side, size);
  return resize_part(image, centre.box, centre.height, centre.width, centre.part);
}

void normalize_image(const Image& image, bool is_flipped, const NormalizationTable& table, std::span<float> out) {
  if (out.size() != image.pixels.size()) {
    throw std::invalid_argument("normalize_image: the image has " + std::to_string(image.pixels.size()) +
                                " values, but the output has room for " + std::to_string(out.size()));
  }
  const int64_t width = image.width;
  const int64_t plane = image.height * width;
  for (int64_t y = 0; y < image.height; ++y) {
    // Stores one channel at a time: planes are often a multiple of the page size apart, and such addresses compete for
    // the same cache lines.
    for (size_t channel = 0; channel < table.size(); ++channel) {
      const auto& values = table[channel];
      const uint8_t* pixel = image.pixels.data() + y * width * 3 + channel;
      float* target = out.data() + static_cast<int64_t>(channel) * plane + y * width;
      if (is_flipped) {
        for (int64_t x = width; x-- > 0; pixel += 3) target[x] = values[*pixel];
      } else {
        for (int64_t x = 0; x < width; ++x, pixel += 3) target[x] = values[*pixel];
      }
    }
  }
}

NormalizationTable normalization_table(const Normalization& normalization) {
  NormalizationTable table;
  for (size_t channel = 0; channel < table.size(); ++channel) {
    const float mean = normalization.mean[channel];
    const float stddev = normalization.stddev[channel];
    if (!std::isfinite(mean) || !std::isfinite(stddev) || stddev <= 0.0F) {
      throw std::invalid_argument("Invalid normalization of channel " + std::to_string(channel) + ": mean " +
                                  std::to_string(mean) + ", stddev " + std::to_string(stddev) +
                                  "; both should be finite and stddev above 0");
    }
    for (size_t value = 0; value < table[channel].size(); ++value) {
      table[channel][value] = (static_cast<float>(value) / 255.0F - mean) / stddev;
    }
  }
  return table;
}

}  // namespace ddp
