// Scaling of pictures as Pillow does it. No LibTorch.
#pragma once

#include <cstdint>

#include <ddprun/data/image.h>

namespace ddp {

/// A part of a picture, in pixels.
struct Box {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

/// The box of the picture as a picture of this size: bilinear, each output pixel an average over all that it covers, so
/// that nothing is skipped when a picture gets smaller. The same pixels as Pillow's crop() and resize(BILINEAR), which
/// torchvision's Resize uses (Pillow 13 goes down before it goes across for some shapes, which differs by 1 at most).
/// Throws std::invalid_argument for a box that is not within the picture and for sizes outside 1 to 65,535.
Image resize(const Image& image, const Box& box, int64_t height, int64_t width);

/// The part `part` of what resize() gives, without the rest of it: `height` and `width` may be beyond 65,535, the sides
/// of the part may not. Throws std::invalid_argument as resize(), and for a part that is not within height and width.
Image resize_part(const Image& image, const Box& box, int64_t height, int64_t width, const Box& part);

}  // namespace ddp
