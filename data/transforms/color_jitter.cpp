#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "ddprun/data/image.h"

namespace ddp {
namespace {

uint8_t clip(int value) {
  return static_cast<uint8_t>(std::clamp(value, 0, 255));
}

// Interpolates from `base` (factor 0) to `value` (factor 1), or extrapolates beyond it.
uint8_t blend(uint8_t base, uint8_t value, float factor) {
  const float mixed = static_cast<float>(base) + factor * static_cast<float>(value - base);
  if (mixed <= 0) return 0;
  return mixed >= 255 ? 255 : static_cast<uint8_t>(mixed);
}

// Converts to grey with the weights of ITU-R 601-2 in 16-bit fixed point, rounded.
uint8_t grey(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >> 16);
}

// A colour in the hexcone model of Foley and van Dam (1982), in bytes.
struct Hsv {
  uint8_t hue;
  uint8_t saturation;
  uint8_t value;
};

Hsv to_hsv(const uint8_t* rgb) {
  const uint8_t most = std::max({rgb[0], rgb[1], rgb[2]});
  const uint8_t least = std::min({rgb[0], rgb[1], rgb[2]});
  if (most == least) return {.hue = 0, .saturation = 0, .value = most};
  const auto range = static_cast<float>(most - least);
  const float saturation = range / static_cast<float>(most);
  const auto distance = [&](uint8_t channel) { return static_cast<float>(most - channel) / range; };
  const float red = distance(rgb[0]);
  const float green = distance(rgb[1]);
  const float blue = distance(rgb[2]);
  float hue = 0;
  if (rgb[0] == most) {
    hue = blue - green;
  } else if (rgb[1] == most) {
    hue = static_cast<float>(2.0 + red - blue);
  } else {
    hue = static_cast<float>(4.0 + green - red);
  }
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  return {.hue = clip(static_cast<int>(hue * 255.0)),
          .saturation = clip(static_cast<int>(saturation * 255.0)),
          .value = most};
}

void to_rgb(const Hsv& hsv, uint8_t* rgb) {
  if (hsv.saturation == 0) {
    std::fill_n(rgb, 3, hsv.value);
    return;
  }
  const auto sixths = static_cast<float>(static_cast<float>(hsv.hue) * 6.0 / 255.0);
  const int sector = static_cast<int>(std::floor(sixths));
  const float part = sixths - static_cast<float>(sector);
  const auto saturation = static_cast<float>(static_cast<float>(hsv.saturation) / 255.0);
  const auto value = static_cast<float>(hsv.value);
  const uint8_t p = clip(static_cast<int>(std::round(value * (1.0 - saturation))));
  const uint8_t q = clip(static_cast<int>(std::round(value * (1.0 - saturation * part))));
  const uint8_t t = clip(static_cast<int>(std::round(value * (1.0 - saturation * (1.0 - part)))));
  const uint8_t v = hsv.value;
  const std::array<std::array<uint8_t, 3>, 6> sectors{
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::ranges::copy(sectors[static_cast<size_t>(sector % 6)], rgb);
}

template <typename F>
void for_each_pixel(Image& image, F f) {
  for (size_t i = 0; i + 2 < image.pixels.size(); i += 3) f(image.pixels.data() + i);
}

}  // namespace

void check_color_jitter(const ColorJitterOptions& options) {
  const auto check = [](const char* name, double value, double most) {
    if (value >= 0 && value <= most) return;
    throw std::invalid_argument("color jitter: " + std::string(name) + " = " + std::to_string(value) +
                                ", expected 0 to " + std::to_string(most));
  };
  constexpr double kMax = 1e6;
  check("brightness", options.brightness, kMax);
  check("contrast", options.contrast, kMax);
  check("saturation", options.saturation, kMax);
  check("hue", options.hue, 0.5);
}

void adjust_brightness(Image& image, double factor) {
  for (uint8_t& value : image.pixels) value = blend(0, value, static_cast<float>(factor));
}

void adjust_contrast(Image& image, double factor) {
  if (image.pixels.empty()) return;
  uint64_t sum = 0;
  for_each_pixel(image, [&](const uint8_t* rgb) { sum += grey(rgb); });
  const auto count = static_cast<double>(image.pixels.size() / 3);
  const auto mean = static_cast<uint8_t>(static_cast<double>(sum) / count + 0.5);
  for (uint8_t& value : image.pixels) value = blend(mean, value, static_cast<float>(factor));
}

void adjust_saturation(Image& image, double factor) {
  for_each_pixel(image, [&](uint8_t* rgb) {
    const uint8_t base = grey(rgb);
    for (int i = 0; i < 3; ++i) rgb[i] = blend(base, rgb[i], static_cast<float>(factor));
  });
}

void adjust_hue(Image& image, double turns) {
  // Truncates towards zero, then wraps around the circle of 256 hues.
  const auto shift = static_cast<uint8_t>(static_cast<int>(turns * 255) & 0xFF);
  for_each_pixel(image, [&](uint8_t* rgb) {
    Hsv hsv = to_hsv(rgb);
    hsv.hue = static_cast<uint8_t>(hsv.hue + shift);
    to_rgb(hsv, rgb);
  });
}

void color_jitter(Image& image, const ColorJitterOptions& options, SampleRandom& random) {
  std::array<int, 4> order{0, 1, 2, 3};
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<size_t>(random.below(i + 1))]);
  }
  const auto factor = [&](double degree) { return random.uniform(std::max(0.0, 1 - degree), 1 + degree); };
  for (const int change : order) {
    if (change == 0 && options.brightness > 0) adjust_brightness(image, factor(options.brightness));
    if (change == 1 && options.contrast > 0) adjust_contrast(image, factor(options.contrast));
    if (change == 2 && options.saturation > 0) adjust_saturation(image, factor(options.saturation));
    if (change == 3 && options.hue > 0) adjust_hue(image, random.uniform(-options.hue, options.hue));
  }
}

}  // namespace ddp
