#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/transforms/resize_kernels.h"
#include "data/transforms/resize_window.h"
#include "ddprun/data/image.h"

namespace ddp {
namespace {

constexpr int64_t kMaxSide = 65'535;
using Window = ResizeWindow;
using Weights = ResizeWeights;

/// The input pixels that contribute to one output pixel: those within `support` of `centre`.
Window window_of(double centre, double support, int64_t in) {
  // Adds 1/2 and truncates towards 0, although the sum may be negative.
  const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
  const int64_t end = std::min<int64_t>(in, static_cast<int64_t>(centre + support + 0.5));
  return {.begin = begin, .count = end - begin};
}

/// The input pixels that contribute to `count` output pixels from `first` on.
Window reach_of(int64_t in, int64_t out, int64_t first, int64_t count) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  const Window begin = window_of((static_cast<double>(first) + 0.5) * scale, support, in);
  const Window last = window_of((static_cast<double>(first + count - 1) + 0.5) * scale, support, in);
  return {.begin = begin.begin, .count = last.begin + last.count - begin.begin};
}

/// The weights for `count` output pixels from `first` on.
Weights make_weights(int64_t in, int64_t out, int64_t first, int64_t count) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);  // half the width of the triangle, at least one input pixel
  Weights weights;
  weights.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 2;  // even, and more than any window needs
  weights.windows.resize(static_cast<size_t>(count));
  weights.values.resize(static_cast<size_t>(count * weights.stride));
  std::vector<double> exact(static_cast<size_t>(weights.stride));
  for (int64_t x = 0; x < count; ++x) {
    const double centre = (static_cast<double>(first + x) + 0.5) * scale;
    const Window window = window_of(centre, support, in);
    const int64_t begin = window.begin;
    const int64_t end = window.begin + window.count;
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double distance = std::abs((static_cast<double>(i) - centre + 0.5) * (1.0 / support));
      exact[static_cast<size_t>(i - begin)] = distance < 1.0 ? 1.0 - distance : 0.0;
      sum += exact[static_cast<size_t>(i - begin)];
    }
    weights.windows[static_cast<size_t>(x)] = window;
    weights.most = std::max(weights.most, window.count);
    for (int64_t i = 0; i < end - begin; ++i) {
      const double share = sum == 0 ? exact[static_cast<size_t>(i)] : exact[static_cast<size_t>(i)] * (1.0 / sum);
      weights.values[static_cast<size_t>(x * weights.stride + i)] =
          static_cast<int32_t>(0.5 + share * (1 << kWeightFractionBits));
    }
  }
  return weights;
}

/// Resizes `rows` rows of RGB pixels that are `stride` bytes apart; the last row has `last` bytes.
std::unique_ptr<uint8_t[]> resize_rows(const uint8_t* in, int64_t rows, int64_t stride, int64_t last,
                                       const Weights& weights) {
  constexpr size_t kMaxSpreadWeights = size_t{1} << 18;  // weights for reductions by hundreds need megabytes
  const ResizeKernels& kernels =
      weights.values.size() <= kMaxSpreadWeights ? resize_kernels() : portable_resize_kernels();
  const auto spread = kernels.spread != nullptr ? kernels.spread(weights) : std::vector<int32_t>();
  const size_t row_bytes = weights.windows.size() * 3;
  auto out = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(rows) * row_bytes);
  std::vector<uint8_t> copy(static_cast<size_t>(last + kOverreadBytes));
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* row = in + y * stride;
    const int64_t after = (rows - 1 - y) * stride;
    if (after < kOverreadBytes) {
      std::copy_n(row, last, copy.begin());
      row = copy.data();
    }
    kernels.across(row, weights, spread, out.get() + static_cast<size_t>(y) * row_bytes);
  }
  return out;
}

/// Resizes the columns of a picture with `bytes` bytes per row. `in` begins at row `first` of the rows that the weights
/// refer to.
std::vector<uint8_t> resize_columns(const uint8_t* in, int64_t first, int64_t bytes, const Weights& weights) {
  const ResizeKernels& kernels = resize_kernels();
  std::vector<uint8_t> out(weights.windows.size() * static_cast<size_t>(bytes));
  for (size_t y = 0; y < weights.windows.size(); ++y) {
    const Window& window = weights.windows[y];
    const std::span of_window(weights.values.data() + y * static_cast<size_t>(weights.stride),
                              static_cast<size_t>(window.count));
    kernels.down(in + (window.begin - first) * bytes, bytes, of_window, out.data() + y * static_cast<size_t>(bytes));
  }
  return out;
}

}  // namespace

Image resize(const Image& image, const Box& box, int64_t height, int64_t width) {
  return resize_part(image, box, height, width, {.height = height, .width = width});
}

Image resize_part(const Image& image, const Box& box, int64_t height, int64_t width, const Box& part) {
  return resize_window({.pixels = &image, .height = image.height, .width = image.width},
                       {.box = box, .height = height, .width = width, .part = part});
}

Box reach_of(const ResizedPart& wanted) {
  const Window rows = reach_of(wanted.box.height, wanted.height, wanted.part.top, wanted.part.height);
  const Window columns = reach_of(wanted.box.width, wanted.width, wanted.part.left, wanted.part.width);
  return {.top = wanted.box.top + rows.begin,
          .left = wanted.box.left + columns.begin,
          .height = rows.count,
          .width = columns.count};
}

void check_resized_part(int64_t picture_height, int64_t picture_width, const ResizedPart& wanted) {
  const auto& [box, height, width, part] = wanted;
  const auto is_size = [](int64_t size) { return size >= 1 && size <= kMaxSide; };
  if (box.top < 0 || box.left < 0 || box.height < 1 || box.width < 1 || box.height > picture_height - box.top ||
      box.width > picture_width - box.left || !is_size(part.height) || !is_size(part.width) || part.top < 0 ||
      part.left < 0 || part.height > height - part.top || part.width > width - part.left) {
    throw std::invalid_argument("resize: expected a box within " + std::to_string(picture_width) + "x" +
                                std::to_string(picture_height) + " pixels, got " + std::to_string(box.width) + "x" +
                                std::to_string(box.height) + " at " + std::to_string(box.left) + "," +
                                std::to_string(box.top) + ", to become " + std::to_string(width) + "x" +
                                std::to_string(height));
  }
}

Image resize_window(const PixelWindow& window, const ResizedPart& wanted) {
  check_resized_part(window.height, window.width, wanted);
  const auto& [box, height, width, part] = wanted;
  const Weights down = make_weights(box.height, height, part.top, part.height);
  Weights across = make_weights(box.width, width, part.left, part.width);
  const int64_t first = down.windows.front().begin;  // the starts and ends of the windows are in ascending order
  const int64_t rows = down.windows.back().begin + down.windows.back().count - first;
  // The weights count from the left side of the box, which may lie outside of the pixels in memory.
  const int64_t begin = across.windows.front().begin;
  for (Window& columns : across.windows) columns.begin -= begin;
  const int64_t stride = window.pixels->width * 3;
  const uint8_t* corner =
      window.pixels->pixels.data() + (box.top + first - window.top) * stride + (box.left + begin - window.left) * 3;
  // Horizontally first, as in Pillow: the intermediate result is rounded to bytes, so the order affects the result.
  const int64_t columns = across.windows.back().begin + across.windows.back().count;
  const auto narrowed = resize_rows(corner, rows, stride, columns * 3, across);
  return {.height = part.height,
          .width = part.width,
          .pixels = resize_columns(narrowed.get(), first, part.width * 3, down)};
}

}  // namespace ddp
