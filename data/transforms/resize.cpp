#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/data/image.h"

namespace ddp {
namespace {

constexpr int64_t kMostSide = 65'535;
/// Weights are whole numbers of this many binary places: 8 bits of colour and 2 of headroom in 32.
constexpr int kPlaces = 32 - 8 - 2;

/// Which input pixels make one output pixel along an axis, and how much each counts.
struct Window {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Weights {
  std::vector<Window> windows{};
  std::vector<int32_t> values{};  ///< `stride` for each window
  int64_t stride = 0;
};

/// Of the output pixels from `first` on, `count`.
Weights make_weights(int64_t in, int64_t out, int64_t first, int64_t count) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);  // a triangle of width 2, as wide as an output pixel at least
  Weights weights;
  weights.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  weights.windows.resize(static_cast<size_t>(count));
  weights.values.resize(static_cast<size_t>(count * weights.stride));
  std::vector<double> exact(static_cast<size_t>(weights.stride));
  for (int64_t x = 0; x < count; ++x) {
    const double centre = (static_cast<double>(first + x) + 0.5) * scale;
    // (Truncation towards 0 after adding a half, where the sum may be negative.)
    const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
    const int64_t end = std::min<int64_t>(in, static_cast<int64_t>(centre + support + 0.5));
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double distance = std::abs((static_cast<double>(i) - centre + 0.5) * (1.0 / support));
      exact[static_cast<size_t>(i - begin)] = distance < 1.0 ? 1.0 - distance : 0.0;
      sum += exact[static_cast<size_t>(i - begin)];
    }
    weights.windows[static_cast<size_t>(x)] = {.begin = begin, .count = end - begin};
    for (int64_t i = 0; i < end - begin; ++i) {
      const double share = sum == 0 ? exact[static_cast<size_t>(i)] : exact[static_cast<size_t>(i)] * (1.0 / sum);
      weights.values[static_cast<size_t>(x * weights.stride + i)] = static_cast<int32_t>(0.5 + share * (1 << kPlaces));
    }
  }
  return weights;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPlaces, 0, 255));
}

/// `rows` rows of RGB pixels that are `stride` bytes apart.
std::vector<uint8_t> resize_rows(const uint8_t* in, int64_t rows, int64_t stride, const Weights& weights) {
  const auto width = static_cast<int64_t>(weights.windows.size());
  std::vector<uint8_t> out(static_cast<size_t>(rows * width * 3));
  uint8_t* target = out.data();
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* row = in + y * stride;
    for (int64_t x = 0; x < width; ++x, target += 3) {
      const Window& window = weights.windows[static_cast<size_t>(x)];
      const int32_t* weight = weights.values.data() + x * weights.stride;
      const uint8_t* pixel = row + window.begin * 3;
      int32_t red = 1 << (kPlaces - 1);
      int32_t green = red;
      int32_t blue = red;
      for (int64_t i = 0; i < window.count; ++i, pixel += 3) {
        red += pixel[0] * weight[i];
        green += pixel[1] * weight[i];
        blue += pixel[2] * weight[i];
      }
      target[0] = rounded(red);
      target[1] = rounded(green);
      target[2] = rounded(blue);
    }
  }
  return out;
}

/// Columns of a picture with `bytes` bytes a row. Row by row, so that the compiler can use vector instructions.
/// `in` begins with row `first` of what the weights are for.
std::vector<uint8_t> resize_columns(const std::vector<uint8_t>& in, int64_t first, int64_t bytes,
                                    const Weights& weights) {
  std::vector<uint8_t> out(weights.windows.size() * static_cast<size_t>(bytes));
  std::vector<int32_t> sums(static_cast<size_t>(bytes));
  for (size_t y = 0; y < weights.windows.size(); ++y) {
    const Window& window = weights.windows[y];
    std::fill(sums.begin(), sums.end(), 1 << (kPlaces - 1));
    for (int64_t i = 0; i < window.count; ++i) {
      const int32_t weight = weights.values[y * static_cast<size_t>(weights.stride) + static_cast<size_t>(i)];
      const uint8_t* row = in.data() + (window.begin - first + i) * bytes;
      for (int64_t x = 0; x < bytes; ++x) sums[static_cast<size_t>(x)] += row[x] * weight;
    }
    uint8_t* target = out.data() + y * static_cast<size_t>(bytes);
    for (int64_t x = 0; x < bytes; ++x) target[x] = rounded(sums[static_cast<size_t>(x)]);
  }
  return out;
}

}  // namespace

Image resize(const Image& image, const Box& box, int64_t height, int64_t width) {
  return resize_part(image, box, height, width, {.height = height, .width = width});
}

Image resize_part(const Image& image, const Box& box, int64_t height, int64_t width, const Box& part) {
  const auto is_size = [](int64_t size) { return size >= 1 && size <= kMostSide; };
  if (box.top < 0 || box.left < 0 || box.height < 1 || box.width < 1 || box.height > image.height - box.top ||
      box.width > image.width - box.left || !is_size(part.height) || !is_size(part.width) || part.top < 0 ||
      part.left < 0 || part.height > height - part.top || part.width > width - part.left) {
    throw std::invalid_argument("resize: expected a box within " + std::to_string(image.width) + "x" +
                                std::to_string(image.height) + " pixels, got " + std::to_string(box.width) + "x" +
                                std::to_string(box.height) + " at " + std::to_string(box.left) + "," +
                                std::to_string(box.top) + ", to become " + std::to_string(width) + "x" +
                                std::to_string(height));
  }
  const Weights down = make_weights(box.height, height, part.top, part.height);
  const int64_t first = down.windows.front().begin;  // windows begin and end in the order of their pixels
  const int64_t rows = down.windows.back().begin + down.windows.back().count - first;
  const uint8_t* corner = image.pixels.data() + ((box.top + first) * image.width + box.left) * 3;
  // Across first, as Pillow: the result in between is rounded to bytes, so the order shows.
  const std::vector<uint8_t> narrowed =
      resize_rows(corner, rows, image.width * 3, make_weights(box.width, width, part.left, part.width));
  return {.height = part.height, .width = part.width, .pixels = resize_columns(narrowed, first, part.width * 3, down)};
}

}  // namespace ddp
