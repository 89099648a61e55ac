#include "monitor/curves/layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "monitor/curves/axis.h"
#include "monitor/curves/legend.h"
#include "monitor/curves/text_width.h"

namespace ddp::curves {
namespace {

constexpr double kMargin = 12;  // around each chart
constexpr double kTitle = 24;   // includes the space below it
constexpr double kRight = 20;   // half of a long label may extend beyond the end of the axis
constexpr double kXLabels = 36;
constexpr double kToLegend = 6;
constexpr double kToTickLabel = 6;
constexpr double kRoomOfXLabel = 64;
constexpr double kRoomOfYLabel = 27;
constexpr double kBetweenLabels = 10;
constexpr double kMinPlotSize = 10;  // labels that are too wide for a small chart extend beyond it
constexpr double kXMargin = 0.02;
constexpr double kYMargin = 0.05;
constexpr double kBoldness = 1.12;  // bold letters may be wider by this factor
constexpr Colour kDark{0x22, 0x22, 0x22};
constexpr Colour kGrey{0x66, 0x66, 0x66};
constexpr Colour kFrame{0x99, 0x99, 0x99};
constexpr Colour kGrid{0xE2, 0xE2, 0xE2};

/// The area in which curves are drawn.
struct Plot {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

/// The range of the finite values of all lines.
struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  bool is_whole = true;

  void add(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
    is_whole = is_whole && value == std::floor(value);
  }

  Axis axis(const AxisOptions& options) const {
    return least <= most ? make_axis(least, most, options) : make_axis(0, 1, options);
  }
};

/// Returns the indices of the points that can be distinguished in an image that is `columns` pixels wide.
std::vector<size_t> visible(const Line& line, const Axis& x, double columns) {
  std::vector<size_t> kept;
  if (line.x.size() < 4 * static_cast<size_t>(columns)) {
    for (size_t i = 0; i < line.x.size(); ++i) kept.push_back(i);
    return kept;
  }
  const auto column = [&](size_t i) { return static_cast<int64_t>(x.place(line.x[i]) * columns); };
  for (size_t begin = 0; begin < line.x.size();) {
    size_t least = begin;
    size_t most = begin;
    size_t end = begin;
    for (; end < line.x.size() && column(end) == column(begin); ++end) {
      if (!(line.y[end] >= line.y[least])) least = end;  // keeps a value that is not finite, because it makes a gap
      if (line.y[end] > line.y[most]) most = end;
    }
    kept.push_back(std::min(least, most));
    if (least != most) kept.push_back(std::max(least, most));
    begin = end;
  }
  return kept;
}

bool fit_beside_each_other(const Axis& axis, const std::vector<std::string>& labels, double width) {
  for (size_t i = 1; i < labels.size(); ++i) {
    const double room = (axis.place(axis.ticks[i]) - axis.place(axis.ticks[i - 1])) * width;
    const double needed = (text_width(labels[i - 1], kFontSize) + text_width(labels[i], kFontSize)) / 2;
    if (room < needed + kBetweenLabels) return false;
  }
  return true;
}

class ChartDrawing {
 public:
  ChartDrawing(const Chart& chart, PixelPoint corner, const ChartOptions& options)
      : chart_(chart),
        corner_(corner),
        size_{static_cast<double>(options.width), static_cast<double>(options.height)},
        legend_(make_legend(chart, size_.x - 2 * kMargin, most_legend_rows())) {
    for (const Line& line : chart.lines) {
      for (const double value : line.x) x_range_.add(value);
      for (const double value : line.y) y_range_.add(value);
    }
  }

  size_t legend_rows() const { return legend_.rows; }

  /// Sets the height. It leaves space for as many legend rows as the other charts of this row need.
  void set_legend_rows(size_t rows) {
    const double legend = rows == 0 ? 0 : kToLegend + static_cast<double>(rows) * kLegendRow;
    plot_.top = corner_.y + kMargin + kTitle;
    plot_.height = size_.y - 2 * kMargin - kTitle - kXLabels - legend;
    const int ticks = std::clamp(static_cast<int>(plot_.height / kRoomOfYLabel), 2, 10);
    y_ = y_range_.axis({.ticks = ticks, .margin = kYMargin});
    y_labels_ = tick_labels(y_);
  }

  /// Returns the width of the labels of the vertical axis.
  double label_width() const {
    double widest = 0;
    for (const std::string& label : y_labels_) widest = std::max(widest, text_width(label, kFontSize));
    return widest * 1.05 + kToTickLabel;
  }

  /// Sets the width. It leaves space for labels as wide as those of the other charts in this column.
  void set_label_width(double width) {
    plot_.width = std::max(size_.x - kMargin - kRight - width, kMinPlotSize);
    plot_.left = corner_.x + size_.x - kRight - plot_.width;
    for (int ticks = std::clamp(static_cast<int>(plot_.width / kRoomOfXLabel), 1, 10); ticks > 0; --ticks) {
      x_ = x_range_.axis({.ticks = ticks, .margin = kXMargin, .whole = x_range_.is_whole});
      x_labels_ = tick_labels(x_);
      if (fit_beside_each_other(x_, x_labels_, plot_.width)) break;
    }
  }

  void draw(const LineStyles& styles, Canvas& canvas) const {
    draw_frame(canvas);
    for (const Line& line : chart_.lines) draw_line(line, styles.of(line.label), canvas);
    const double legend_top = plot_.top + plot_.height + kXLabels + kToLegend;
    draw_legend(legend_, {corner_.x + kMargin, legend_top}, styles, canvas);
  }

 private:
  size_t most_legend_rows() const { return std::max<size_t>(1, static_cast<size_t>(size_.y / 3 / kLegendRow)); }
  double across(double value) const { return plot_.left + x_.place(value) * plot_.width; }
  double down(double value) const { return plot_.top + (1 - y_.place(value)) * plot_.height; }

  void draw_frame(Canvas& canvas) const {
    const double bottom = plot_.top + plot_.height;
    const double right = plot_.left + plot_.width;
    const double middle = plot_.left + plot_.width / 2;
    canvas.text({corner_.x + size_.x / 2, corner_.y + kMargin + kFontSize},
                {.anchor = Anchor::kMiddle, .colour = kDark, .bold = true},
                shortened(chart_.title, (size_.x - 2 * kMargin) / kBoldness));
    for (size_t i = 0; i < y_.ticks.size(); ++i) {
      const double y = down(y_.ticks[i]);
      canvas.rule({plot_.left, y}, {right, y}, kGrid);
      canvas.text({plot_.left - kToTickLabel, y + kFontSize / 3}, {.anchor = Anchor::kEnd, .colour = kDark},
                  y_labels_[i]);
    }
    for (size_t i = 0; i < x_.ticks.size(); ++i) {
      const double x = across(x_.ticks[i]);
      canvas.rule({x, plot_.top}, {x, bottom}, kGrid);
      canvas.text({x, bottom + 15}, {.anchor = Anchor::kMiddle, .colour = kDark}, x_labels_[i]);
    }
    canvas.rule({plot_.left, plot_.top}, {plot_.left, bottom}, kFrame);
    canvas.rule({plot_.left, bottom}, {right, bottom}, kFrame);
    canvas.text({middle, bottom + 31}, {.anchor = Anchor::kMiddle, .colour = kGrey}, chart_.x_label);
  }

  void draw_line(const Line& line, const LineStyle& style, Canvas& canvas) const {
    std::vector<Polyline> pieces(1);
    for (const size_t i : visible(line, x_, plot_.width)) {
      if (std::isfinite(line.x[i]) && std::isfinite(line.y[i])) {
        pieces.back().push_back({across(line.x[i]), down(line.y[i])});
      } else if (!pieces.back().empty()) {
        pieces.emplace_back();
      }
    }
    std::vector<PixelPoint> alone;  // isolated points, which do not form a line
    for (const Polyline& piece : pieces) {
      if (piece.size() == 1) alone.push_back(piece[0]);
    }
    std::erase_if(pieces, [](const Polyline& piece) { return piece.size() < 2; });
    if (!pieces.empty()) canvas.lines(pieces, style);
    for (const PixelPoint spot : alone) canvas.dot(spot, pieces.empty() ? 3 : style.width, style.colour);
    if (chart_.lines.size() == 1 && line.x.size() == 1 && alone.size() == 1) {
      canvas.text({alone[0].x + 8, alone[0].y + kFontSize / 3}, {.colour = kDark}, tick_label(line.y[0]));
    }
  }

  const Chart& chart_;
  PixelPoint corner_;
  PixelPoint size_;
  Legend legend_;
  Range x_range_;
  Range y_range_;
  Axis x_;
  Axis y_;
  std::vector<std::string> x_labels_;
  std::vector<std::string> y_labels_;
  Plot plot_;
};

int64_t grid_columns(const std::vector<Chart>& charts, const ChartOptions& options) {
  return std::clamp<int64_t>(options.columns, 1, std::max<int64_t>(1, static_cast<int64_t>(charts.size())));
}

}  // namespace

PictureSize picture_size(const std::vector<Chart>& charts, const ChartOptions& options) {
  const int64_t columns = grid_columns(charts, options);
  const int64_t rows = std::max<int64_t>(1, (static_cast<int64_t>(charts.size()) + columns - 1) / columns);
  return {.width = columns * options.width, .height = rows * options.height};
}

void draw_charts(const std::vector<Chart>& charts, const ChartOptions& options, Canvas& canvas) {
  const auto columns = static_cast<size_t>(grid_columns(charts, options));
  const LineStyles styles(charts);
  std::vector<ChartDrawing> drawings;
  std::vector<size_t> legend_rows(charts.size() / columns + 1);  // index: row of the grid
  std::vector<double> label_widths(columns);                     // index: column of the grid
  for (size_t i = 0; i < charts.size(); ++i) {
    const PixelPoint corner{static_cast<double>(i % columns) * static_cast<double>(options.width),
                            static_cast<double>(i / columns) * static_cast<double>(options.height)};
    drawings.emplace_back(charts[i], corner, options);
    legend_rows[i / columns] = std::max(legend_rows[i / columns], drawings[i].legend_rows());
  }
  for (size_t i = 0; i < charts.size(); ++i) {
    drawings[i].set_legend_rows(legend_rows[i / columns]);
    label_widths[i % columns] = std::max(label_widths[i % columns], drawings[i].label_width());
  }
  for (size_t i = 0; i < charts.size(); ++i) {
    drawings[i].set_label_width(label_widths[i % columns]);
    drawings[i].draw(styles, canvas);
  }
}

}  // namespace ddp::curves
