// Resizes pictures of which only a window is in memory. Does not use LibTorch.
#pragma once

#include <cstdint>

#include <ddprun/data/image.h>

namespace ddp {

/// The rows and columns of a picture that are in memory.
struct PixelWindow {
  const Image* pixels = nullptr;
  int64_t height = 0;  ///< of the whole picture
  int64_t width = 0;   ///< of the whole picture
  int64_t top = 0;     ///< the row of the picture at which the pixels begin
  int64_t left = 0;
};

/// Throws std::invalid_argument, like resize_part(), if a picture of this size does not contain that part.
void check_resized_part(int64_t picture_height, int64_t picture_width, const ResizedPart& wanted);

/// Returns the box of the picture that resize_window() reads.
Box reach_of(const ResizedPart& wanted);

/// Like resize_part(). The window must contain reach_of(wanted).
Image resize_window(const PixelWindow& window, const ResizedPart& wanted);

}  // namespace ddp
