// Flips, rotation, crop, erasing and normalization of pictures that are tensors, float (C, H, W), each at random or as
// told. What is drawn has torchvision's distributions; what is then done has its pixels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include <ddprun/data/resize.h>
#include <ddprun/data/transform.h>

namespace ddp::transforms {

/// Left and right exchanged, with this probability. Throws std::invalid_argument for one outside [0, 1], as all here.
Transform random_horizontal_flip(double probability = 0.5);
/// Top and bottom exchanged.
Transform random_vertical_flip(double probability = 0.5);

struct RotationOptions {
  double degrees = 15;    ///< by an angle in [-degrees, degrees], counter-clockwise
  bool bilinear = false;  ///< between pixels; else the nearest one
  double fill = 0;        ///< what comes in from outside
};
/// Turned around its centre, in a picture of the same size. Reference: torchvision.transforms.RandomRotation.
Transform random_rotation(const RotationOptions& options = {});
/// By this angle. Throws std::invalid_argument for a picture of whole numbers. Reference:
/// torchvision.transforms.functional.rotate.
at::Tensor rotate(const at::Tensor& image, double degrees, const RotationOptions& options = {});

struct RandomCropOptions {
  int64_t size = 32;    ///< height and width of what is cut out
  int64_t padding = 0;  ///< pixels added on each side before
  double fill = 0;      ///< of the padding
};
/// A square at a random place. Reference: torchvision.transforms.RandomCrop. The transform throws
/// std::invalid_argument for a picture that is smaller.
Transform random_crop(const RandomCropOptions& options);
/// The square in the middle. Reference: torchvision.transforms.CenterCrop, which pads what is smaller; this throws.
Transform center_crop(int64_t size);

struct RandomErasingOptions {
  double probability = 0.5;
  double least_area = 0.02, most_area = 0.33;  ///< of the picture's
  double least_ratio = 0.3, most_ratio = 3.3;  ///< height to width
  double value = 0;                            ///< what the rectangle is filled with
  bool noise = false;                          ///< fill with numbers of a normal distribution instead
};
/// A random rectangle is overwritten (Zhong et al., "Random Erasing Data Augmentation", AAAI 2020). Reference:
/// torchvision.transforms.RandomErasing.
Transform random_erasing(const RandomErasingOptions& options = {});
/// The rectangle that random_erasing() draws; of height 0 where ten tries gave none that is smaller than the picture.
Box draw_erased(int64_t height, int64_t width, const RandomErasingOptions& options, SampleRandom& random);

/// (value - mean) / stddev for each channel. Throws std::invalid_argument unless both have a number for each channel
/// (or one for all) and every stddev is above 0.
Transform normalize(std::vector<double> mean, std::vector<double> stddev);

}  // namespace ddp::transforms
