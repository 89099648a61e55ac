// From a picture of any size to the square that a network takes, for training and for evaluation. No LibTorch.
#pragma once

#include <cstdint>
#include <span>

#include <ddprun/data/image.h>
#include <ddprun/data/normalization.h>
#include <ddprun/data/resize.h>
#include <ddprun/data/sample_random.h>

namespace ddp {

/// The part that torchvision's RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3)) takes: 8 to 100 % of the area,
/// sides in that ratio; after ten failed tries the largest centred part in that range of ratios.
Box draw_resized_crop(int64_t height, int64_t width, SampleRandom& random);

/// torchvision's Resize(`shorter_side`) and CenterCrop(`size`). Throws std::invalid_argument when the crop is larger
/// than the resized picture.
Image resize_and_crop_centre(const Image& image, int64_t shorter_side, int64_t size);

/// torchvision's ToTensor and Normalize, mirrored left to right if asked for: `out` has room for (3, height, width)
/// floats, else std::invalid_argument.
void normalize_image(const Image& image, bool is_flipped, const NormalizationTable& table, std::span<float> out);

}  // namespace ddp
