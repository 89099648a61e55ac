// Random changes of brightness, contrast, saturation and hue. No LibTorch.
#pragma once

#include <array>

#include <ddprun/data/image.h>
#include <ddprun/data/sample_random.h>

namespace ddp {

/// As torchvision's ColorJitter: factors are uniform in [max(0, 1 - x), 1 + x], hue shifts in [-hue, hue] turns, in a
/// random order. 0 leaves that property alone.
struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  ///< at most 0.5

  bool is_active() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};

/// Throws std::invalid_argument, naming the value, for negative or non-finite ones and a hue above 0.5.
void check_color_jitter(const ColorJitterOptions& options);

/// Brings brightness, contrast, saturation and hue into a random order and each to a random degree.
void color_jitter(Image& image, const ColorJitterOptions& options, SampleRandom& random);

/// The four changes, with the pixels that Pillow's ImageEnhance and torchvision's functions on Pillow images give:
/// towards black (factor 0), or away (above 1).
void adjust_brightness(Image& image, double factor);
/// Towards the mean grey.
void adjust_contrast(Image& image, double factor);
/// Towards the grey picture.
void adjust_saturation(Image& image, double factor);
/// By so many turns of the colour circle, -0.5 to 0.5.
void adjust_hue(Image& image, double turns);

}  // namespace ddp
