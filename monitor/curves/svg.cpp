#include "monitor/curves/svg.h"

#include <array>
#include <cstdio>
#include <string_view>

#include "base/joined.h"
#include "base/utf8.h"
#include "monitor/curves/canvas.h"
#include "monitor/curves/layout.h"

namespace ddp::curves {
namespace {

std::string number(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string code(Colour colour) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "#%02X%02X%02X", colour.red, colour.green, colour.blue);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char byte : detail::valid_utf8(text)) {
    switch (byte) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += static_cast<unsigned char>(byte) < 0x20 ? ' ' : byte;  // XML does not allow other control characters
    }
  }
  return safe;
}

class SvgCanvas : public Canvas {
 public:
  explicit SvgCanvas(PictureSize size) {
    const std::string width = std::to_string(size.width);
    const std::string height = std::to_string(size.height);
    svg_.append("<svg xmlns=\"http://www.w3.org/2000/svg\"");
    attribute("width", width).attribute("height", height).attribute("viewBox", "0 0 " + width + " " + height);
    attribute("font-family", "sans-serif").attribute("font-size", std::to_string(static_cast<int>(kFontSize)));
    svg_.append(">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  }

  void rule(PixelPoint from, PixelPoint to, Colour colour) override {
    svg_.append("<line");
    attribute("x1", number(from.x)).attribute("y1", number(from.y));
    attribute("x2", number(to.x)).attribute("y2", number(to.y)).attribute("stroke", code(colour));
    svg_.append("/>\n");
  }

  void lines(const std::vector<Polyline>& pieces, const LineStyle& style) override {
    std::string path;
    for (const Polyline& piece : pieces) {
      const char* command = " M";
      for (const PixelPoint spot : piece) {
        path.append(command).append(number(spot.x)).append(",").append(number(spot.y));
        command = " L";
      }
    }
    svg_.append("<path");
    attribute("d", path).attribute("fill", "none").attribute("stroke", code(style.colour));
    attribute("stroke-width", number(style.width)).attribute("stroke-linejoin", "round");
    if (style.dashes.empty()) {
      attribute("stroke-linecap", "round");
    } else {
      attribute("stroke-dasharray", detail::joined(style.dashes, ",", number));
    }
    svg_.append("/>\n");
  }

  void dot(PixelPoint centre, double radius, Colour colour) override {
    svg_.append("<circle");
    attribute("cx", number(centre.x)).attribute("cy", number(centre.y)).attribute("r", number(radius));
    attribute("fill", code(colour));
    svg_.append("/>\n");
  }

  void text(PixelPoint place, const TextStyle& style, const std::string& text) override {
    constexpr std::array<std::string_view, 3> kAnchors = {"start", "middle", "end"};
    svg_.append("<text");
    attribute("x", number(place.x)).attribute("y", number(place.y));
    attribute("text-anchor", kAnchors[static_cast<size_t>(style.anchor)]).attribute("fill", code(style.colour));
    if (style.bold) attribute("font-weight", "bold");
    svg_.append(">").append(escaped(text)).append("</text>\n");
  }

  std::string finish() { return std::move(svg_.append("</svg>\n")); }

 private:
  SvgCanvas& attribute(std::string_view name, std::string_view value) {
    svg_.append(" ").append(name).append("=\"").append(value).append("\"");
    return *this;
  }

  std::string svg_;
};

}  // namespace

std::string draw_svg(const std::vector<Chart>& charts, const ChartOptions& options) {
  SvgCanvas canvas(picture_size(charts, options));
  draw_charts(charts, options, canvas);
  return canvas.finish();
}

}  // namespace ddp::curves
