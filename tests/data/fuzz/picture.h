// What every reader of picture files promises.
#pragma once

#include <ddprun/data/image.h>

#include "tests/data/fuzz/reader.h"

namespace fuzz {

/// Reads a file's bytes, which may claim 65,536 pixels at most.
inline Outcome read_picture(std::string_view file) {
  constexpr int64_t kMaxPixels = 1 << 16;
  const std::filesystem::path path = "picture";
  return may_refuse(path, [&] {
    const ddp::Image image = ddp::decode_image({file.begin(), file.end()}, path, {.most_pixels = kMaxPixels});
    require(image.height > 0 && image.width > 0 && image.height * image.width <= kMaxPixels, "a picture has a size");
    require(static_cast<int64_t>(image.pixels.size()) == image.height * image.width * 3, "the pixels are that many");
  });
}

}  // namespace fuzz
