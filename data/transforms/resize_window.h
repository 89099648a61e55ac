// Resizing pictures of which only a window is in memory. No LibTorch.
#pragma once

#include <cstdint>

#include <ddprun/data/image.h>

namespace ddp {

/// The rows and columns of a picture that are in memory.
struct PixelWindow {
  const Image* pixels = nullptr;
  int64_t height = 0;  ///< of the whole picture
  int64_t width = 0;   ///< of the whole picture
  int64_t top = 0;     ///< where in the picture the pixels begin
  int64_t left = 0;
};

/// Throws std::invalid_argument as resize_part() unless a picture of this size has that part.
void check_resized_part(int64_t picture_height, int64_t picture_width, const ResizedPart& wanted);

/// The box of the picture whose pixels resize_window() reads.
Box reach_of(const ResizedPart& wanted);

/// As resize_part(). reach_of(wanted) must be in the window.
Image resize_window(const PixelWindow& window, const ResizedPart& wanted);

}  // namespace ddp
