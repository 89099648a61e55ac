#include "monitor/curves/pixels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numbers>
#include <stdexcept>

#include "base/utf8.h"
#include "monitor/curves/cairo.h"
#include "monitor/curves/canvas.h"
#include "monitor/curves/layout.h"

namespace ddp::curves {
namespace {

constexpr int64_t kMaxSidePixels = 32'767;  // the largest size that cairo supports
constexpr int64_t kMaxPixels = int64_t{1} << 27;

class PixelCanvas : public Canvas {
 public:
  PixelCanvas(int64_t width, int64_t height, double scale)
      : cairo_(load_cairo()),
        width_(width),
        height_(height),
        surface_(cairo_.image_surface_create(kCairoRgb24, static_cast<int>(width), static_cast<int>(height)),
                 cairo_.surface_destroy),
        context_(cairo_.create(surface_.get()), cairo_.destroy),
        thickness_(std::max(1.0, std::round(scale)) / scale),
        scale_(scale) {
    if (cairo_.surface_status(surface_.get()) != 0) throw std::bad_alloc();
    set_colour({255, 255, 255});
    cairo_.paint(context_.get());
    cairo_.scale(context_.get(), scale, scale);
    cairo_.set_line_join(context_.get(), kCairoRound);
    cairo_.set_font_size(context_.get(), kFontSize);
  }

  void rule(PixelPoint from, PixelPoint to, Colour colour) override {
    // Drawn on whole pixels, because with anti-aliasing the line would be wider and fainter.
    const PixelPoint begin = pixel_corner({std::min(from.x, to.x), std::min(from.y, to.y)});
    const PixelPoint end = pixel_corner({std::max(from.x, to.x), std::max(from.y, to.y)});
    set_colour(colour);
    cairo_.set_antialias(context_.get(), kCairoAntialiasNone);
    cairo_.rectangle(context_.get(), begin.x, begin.y, end.x - begin.x + thickness_, end.y - begin.y + thickness_);
    cairo_.fill(context_.get());
    cairo_.set_antialias(context_.get(), kCairoAntialiasDefault);
  }

  void lines(const std::vector<Polyline>& pieces, const LineStyle& style) override {
    set_colour(style.colour);
    cairo_.set_line_cap(context_.get(), style.dashes.empty() ? kCairoRound : kCairoButt);
    cairo_.set_line_width(context_.get(), style.width);
    cairo_.set_dash(context_.get(), style.dashes.data(), static_cast<int>(style.dashes.size()), 0);
    for (const Polyline& piece : pieces) {
      cairo_.move_to(context_.get(), piece.front().x, piece.front().y);
      for (const PixelPoint spot : piece) cairo_.line_to(context_.get(), spot.x, spot.y);
    }
    cairo_.stroke(context_.get());
  }

  void dot(PixelPoint centre, double radius, Colour colour) override {
    set_colour(colour);
    cairo_.new_path(context_.get());
    cairo_.arc(context_.get(), centre.x, centre.y, radius, 0, 2 * std::numbers::pi);
    cairo_.fill(context_.get());
  }

  void text(PixelPoint place, const TextStyle& style, const std::string& text) override {
    // After a text that is not valid UTF-8, cairo stops drawing.
    const std::string valid = detail::shown_text(text);
    set_colour(style.colour);
    cairo_.select_font_face(context_.get(), "sans-serif", kCairoNormal, style.bold ? kCairoBold : kCairoNormal);
    CairoTextExtents extents;
    cairo_.text_extents(context_.get(), valid.c_str(), &extents);
    if (style.anchor == Anchor::kMiddle) place.x -= extents.x_advance / 2;
    if (style.anchor == Anchor::kEnd) place.x -= extents.x_advance;
    cairo_.move_to(context_.get(), place.x, place.y);
    cairo_.show_text(context_.get(), valid.c_str());
  }

  Bitmap bitmap() const {
    cairo_.surface_flush(surface_.get());
    const auto* data = cairo_.image_surface_get_data(surface_.get());
    const auto stride = static_cast<size_t>(cairo_.image_surface_get_stride(surface_.get()));
    Bitmap bitmap{.height = height_, .width = width_, .channels = 3};
    bitmap.pixels.reserve(static_cast<size_t>(width_ * height_ * 3));
    for (size_t y = 0; y < static_cast<size_t>(height_); ++y) {
      for (size_t x = 0; x < static_cast<size_t>(width_); ++x) {
        uint32_t pixel = 0;
        std::memcpy(&pixel, data + y * stride + x * sizeof(pixel), sizeof(pixel));
        for (const unsigned shift : {16U, 8U, 0U}) bitmap.pixels.push_back(static_cast<uint8_t>(pixel >> shift));
      }
    }
    return bitmap;
  }

 private:
  void set_colour(Colour colour) {
    cairo_.set_source_rgb(context_.get(), colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0);
  }
  PixelPoint pixel_corner(PixelPoint spot) const {
    return {std::floor(spot.x * scale_) / scale_, std::floor(spot.y * scale_) / scale_};
  }

  Cairo cairo_;
  int64_t width_;
  int64_t height_;
  std::unique_ptr<CairoSurface, void (*)(CairoSurface*)> surface_;
  std::unique_ptr<CairoContext, void (*)(CairoContext*)> context_;
  double thickness_;  // the thickness of a rule
  double scale_;
};

}  // namespace

Bitmap draw_bitmap(const std::vector<Chart>& charts, const ChartOptions& options, double scale) {
  const PictureSize size = picture_size(charts, options);
  const auto width = static_cast<int64_t>(std::ceil(static_cast<double>(size.width) * scale));
  const auto height = static_cast<int64_t>(std::ceil(static_cast<double>(size.height) * scale));
  if (width > kMaxSidePixels || height > kMaxSidePixels || width * height > kMaxPixels) {
    throw std::invalid_argument("a PNG picture of " + std::to_string(width) + "x" + std::to_string(height) +
                                " pixels is too large: choose fewer curves (--tag), smaller charts or a smaller "
                                "--scale, or SVG");
  }
  PixelCanvas canvas(width, height, scale);
  draw_charts(charts, options, canvas);
  return canvas.bitmap();
}

std::string draw_png(const std::vector<Chart>& charts, const ChartOptions& options, double scale) {
  return encode_png(draw_bitmap(charts, options, scale));
}

}  // namespace ddp::curves
