// Made-up CIFAR-10 files for the tests of this folder.
#pragma once

#include <cstdint>
#include <string>

#include <ddprun/data/file_formats.h>

namespace ddp::test {

/// The pixel byte number `position` of the made-up image number `image`: different for neighbours in every direction.
inline uint8_t pixel(int64_t image, int64_t position) {
  return static_cast<uint8_t>(31 * image + 7 * position + position / 251);
}

/// `count` records; image i is made of pixel(first + i, …) and has the label (first + i) % 10.
inline std::string records(int64_t first, int64_t count) {
  std::string content;
  for (int64_t image = first; image < first + count; ++image) {
    content.push_back(static_cast<char>(image % 10));
    for (int64_t i = 0; i < kCifar10ImageBytes; ++i) content.push_back(static_cast<char>(pixel(image, i)));
  }
  return content;
}

}  // namespace ddp::test
