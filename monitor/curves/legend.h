// Which line of a chart is whose: styles by label, and where the labels stand.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "monitor/curves/canvas.h"
#include "monitor/curves/chart.h"

namespace ddp::curves {

/// A label's style is the same in all charts.
class LineStyles {
 public:
  explicit LineStyles(const std::vector<Chart>& charts);
  const LineStyle& of(const std::string& label) const { return styles_.at(label); }

 private:
  std::map<std::string, LineStyle> styles_;
};

/// One label with a piece of its line in front of it.
struct LegendEntry {
  std::string text{};   ///< shortened to the width that there is
  std::string label{};  ///< empty: no line in front, as for "and 5 more"
  double left = 0;      ///< of the piece of line, from the legend's left end
  size_t row = 0;
};

struct Legend {
  std::vector<LegendEntry> entries{};
  size_t rows = 0;
};

inline constexpr double kLegendRow = 16;

/// The labels of a chart in rows of this width. Where they take more than `most_rows`, the last entry says how many are
/// left out. Nothing for a single line without a label.
Legend make_legend(const Chart& chart, double width, size_t most_rows);

/// Draws it with its upper left corner at `place`.
void draw_legend(const Legend& legend, PixelPoint place, const LineStyles& styles, Canvas& canvas);

/// The text, or its beginning and end with "…" between, so that it is not wider than `width` pixels.
std::string shortened(const std::string& text, double width);

}  // namespace ddp::curves
