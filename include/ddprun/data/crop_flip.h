// The usual augmentation of small pictures: a crop out of the zero-padded picture, and a mirror image half of the time.
// No LibTorch.
#pragma once

#include <cstdint>
#include <span>

#include <ddprun/data/normalization.h>

namespace ddp {

struct CropFlipOptions {
  int64_t padding = 4;  ///< pixels of zeros on each side; the crop has the picture's own size
  bool flip = true;     ///< left and right are exchanged with probability 1/2
  uint64_t seed = 0;
};

/// What happens to one picture.
struct CropFlip {
  int64_t down = 0;  ///< the crop's place relative to the picture, -padding … padding
  int64_t right = 0;
  bool is_flipped = false;
};

/// Depends on seed, epoch and index alone, so not on the number of workers or ranks; each is uniform.
CropFlip draw_crop_flip(const CropFlipOptions& options, int64_t epoch, int64_t index);

/// Crops, mirrors and normalizes in one pass over the bytes: torchvision's RandomCrop(padding=…), RandomHorizontalFlip,
/// ToTensor and Normalize for these draws. `picture` (channels, height, width) bytes with 1 to 3 channels, `out` as
/// many floats.
void crop_flip_normalize(std::span<const uint8_t> picture, int64_t channels, int64_t height, int64_t width,
                         const CropFlip& draw, const NormalizationTable& table, std::span<float> out);

}  // namespace ddp
