#include "monitor/curves/raster.h"

#include <algorithm>
#include <cmath>

namespace ddp::curves {
namespace {

/// A rectangle of pixels, the right and lower ends outside.
struct Area {
  int64_t left = 0;
  int64_t top = 0;
  int64_t right = 0;
  int64_t bottom = 0;

  bool is_empty() const { return left >= right || top >= bottom; }
};

/// Pixels that a line from a to b, `reach` wide on both sides, can touch within `limit`.
Area area_of(Spot a, Spot b, double reach, const Area& limit) {
  const auto clamped = [](double value, int64_t low, int64_t high) {
    return static_cast<int64_t>(std::clamp(value, static_cast<double>(low), static_cast<double>(high)));
  };
  return {.left = clamped(std::floor(std::min(a.x, b.x) - reach), limit.left, limit.right),
          .top = clamped(std::floor(std::min(a.y, b.y) - reach), limit.top, limit.bottom),
          .right = clamped(std::ceil(std::max(a.x, b.x) + reach), limit.left, limit.right),
          .bottom = clamped(std::ceil(std::max(a.y, b.y) + reach), limit.top, limit.bottom)};
}

double distance(Spot from, Spot a, Spot b) {
  const Spot along{b.x - a.x, b.y - a.y};
  const double square = along.x * along.x + along.y * along.y;
  const double part =
      square > 0 ? std::clamp(((from.x - a.x) * along.x + (from.y - a.y) * along.y) / square, 0.0, 1.0) : 0.0;
  return std::hypot(a.x + part * along.x - from.x, a.y + part * along.y - from.y);
}

/// How much of each pixel of an area is covered, from 0 to 1.
class Cover {
 public:
  Cover(const Area& area, double width)
      : area_(area),
        half_(std::max(width, 1.0) / 2),
        most_(static_cast<float>(std::min(width, 1.0))),  // what is thinner than a pixel is fainter
        cover_(static_cast<size_t>((area.right - area.left) * (area.bottom - area.top))) {}

  void add(Spot a, Spot b) {
    const Area near = area_of(a, b, half_ + 1, area_);
    for (int64_t y = near.top; y < near.bottom; ++y) {
      for (int64_t x = near.left; x < near.right; ++x) {
        const Spot centre{static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5};
        const double inside = half_ + 0.5 - distance(centre, a, b);
        float& cover = cover_[index(x, y)];
        cover = std::max(cover, most_ * static_cast<float>(std::clamp(inside, 0.0, 1.0)));
      }
    }
  }

  float at(int64_t x, int64_t y) const { return cover_[index(x, y)]; }

 private:
  size_t index(int64_t x, int64_t y) const {
    return static_cast<size_t>((y - area_.top) * (area_.right - area_.left) + x - area_.left);
  }

  Area area_;
  double half_;
  float most_;
  std::vector<float> cover_;
};

}  // namespace

Raster::Raster(int64_t width, int64_t height) {
  bitmap_ = {.height = height, .width = width, .channels = 3};
  bitmap_.pixels.assign(static_cast<size_t>(width * height * 3), 255);
}

void Raster::stroke(const std::vector<Polyline>& pieces, double width, Colour colour) {
  const Area all{.right = bitmap_.width, .bottom = bitmap_.height};
  Area touched{.left = all.right, .top = all.bottom};
  for (const Polyline& piece : pieces) {
    for (const Spot spot : piece) {
      const Area area = area_of(spot, spot, width / 2 + 1, all);
      touched = {.left = std::min(touched.left, area.left),
                 .top = std::min(touched.top, area.top),
                 .right = std::max(touched.right, area.right),
                 .bottom = std::max(touched.bottom, area.bottom)};
    }
  }
  if (touched.is_empty()) return;
  Cover cover(touched, width);
  for (const Polyline& piece : pieces) {
    if (piece.size() == 1) cover.add(piece[0], piece[0]);
    for (size_t i = 1; i < piece.size(); ++i) cover.add(piece[i - 1], piece[i]);
  }
  for (int64_t y = touched.top; y < touched.bottom; ++y) {
    for (int64_t x = touched.left; x < touched.right; ++x) blend(x, y, cover.at(x, y), colour);
  }
}

void Raster::fill(int64_t left, int64_t top, int64_t right, int64_t bottom, Colour colour) {
  for (int64_t y = std::max<int64_t>(top, 0); y < std::min(bottom, bitmap_.height); ++y) {
    for (int64_t x = std::max<int64_t>(left, 0); x < std::min(right, bitmap_.width); ++x) blend(x, y, 1, colour);
  }
}

void Raster::blend(int64_t x, int64_t y, float cover, Colour colour) {
  if (cover <= 0) return;
  uint8_t* pixel = bitmap_.pixels.data() + (y * bitmap_.width + x) * 3;
  const auto mixed = [&](uint8_t under, uint8_t over) {
    return static_cast<uint8_t>(
        std::lround(static_cast<float>(under) * (1 - cover) + static_cast<float>(over) * cover));
  };
  pixel[0] = mixed(pixel[0], colour.red);
  pixel[1] = mixed(pixel[1], colour.green);
  pixel[2] = mixed(pixel[2], colour.blue);
}

std::vector<Polyline> dashed(const std::vector<Polyline>& pieces, const std::vector<double>& lengths) {
  std::vector<Polyline> dashes;
  for (const Polyline& piece : pieces) {
    size_t which = 0;  // even: a line, odd: a gap
    double left = lengths.at(0);
    if (!piece.empty()) dashes.push_back({piece[0]});
    for (size_t i = 1; i < piece.size(); ++i) {
      Spot from = piece[i - 1];
      const Spot to = piece[i];
      for (double rest = std::hypot(to.x - from.x, to.y - from.y); rest > 0;) {
        const double step = std::min(rest, left);
        from = {from.x + (to.x - from.x) * step / rest, from.y + (to.y - from.y) * step / rest};
        rest -= step;
        left -= step;
        if (which % 2 == 0) dashes.back().push_back(from);
        if (left > 0) continue;
        which = (which + 1) % lengths.size();
        left = lengths[which];
        if (which % 2 == 0) dashes.push_back({from});
      }
    }
  }
  return dashes;
}

}  // namespace ddp::curves
