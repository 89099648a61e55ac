#include <algorithm>
#include <stdexcept>
#include <string>

#include "ddprun/data/image.h"

namespace ddp {
CropFlip draw_crop_flip(const CropFlipOptions& options, int64_t epoch, int64_t index) {
  if (options.padding < 0) {
    throw std::invalid_argument("Invalid padding " + std::to_string(options.padding) + ", it should not be negative");
  }
  const uint64_t places = 2 * static_cast<uint64_t>(options.padding) + 1;
  SampleRandom random(options.seed, epoch, index);
  const int64_t down = random.below(places) - options.padding;
  const int64_t right = random.below(places) - options.padding;
  return {.down = down, .right = right, .is_flipped = options.flip && random.below(2) == 1};
}

void crop_flip_normalize(std::span<const uint8_t> picture, int64_t channels, int64_t height, int64_t width,
                         const CropFlip& draw, const NormalizationTable& table, std::span<float> out) {
  const auto size = static_cast<size_t>(channels * height * width);
  if (channels < 1 || channels > 3 || picture.size() != size || out.size() != size) {
    throw std::invalid_argument("crop_flip_normalize: expected 1 to 3 channels, and " + std::to_string(size) +
                                " values in picture and out; got " + std::to_string(channels) + " channels, " +
                                std::to_string(picture.size()) + " and " + std::to_string(out.size()));
  }
  // The columns of the crop that lie within the picture.
  const int64_t begin = std::clamp<int64_t>(-draw.right, 0, width);
  const int64_t end = std::clamp<int64_t>(width - draw.right, begin, width);
  float* row_out = out.data();
  for (int64_t channel = 0; channel < channels; ++channel) {
    const auto& values = table[static_cast<size_t>(channel)];
    for (int64_t y = 0; y < height; ++y, row_out += width) {
      const int64_t from = y + draw.down;
      std::fill_n(row_out, width, values[0]);
      if (from < 0 || from >= height) continue;
      const uint8_t* row = picture.data() + (channel * height + from) * width + draw.right;
      if (draw.is_flipped) {
        for (int64_t x = begin; x < end; ++x) row_out[width - 1 - x] = values[row[x]];
      } else {
        for (int64_t x = begin; x < end; ++x) row_out[x] = values[row[x]];
      }
    }
  }
}

}  // namespace ddp
