#include "data/formats/picture_formats.h"

namespace ddp {

void cmyk_to_rgb(const uint8_t* inks, int64_t pixels, uint8_t* rgb) {
  for (int64_t i = 0; i < pixels; ++i, inks += 4, rgb += 3) {
    const int white = 255 - inks[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(white - (inks[c] * white + 127) / 255);
  }
}

}  // namespace ddp
