// Identifies the lines of a chart: line styles by label, and the positions of the labels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "monitor/curves/canvas.h"
#include "monitor/curves/chart.h"

namespace ddp::curves {

/// Assigns styles to labels. A label has the same style in all charts.
class LineStyles {
 public:
  explicit LineStyles(const std::vector<Chart>& charts);
  const LineStyle& of(const std::string& label) const { return styles_.at(label); }

 private:
  std::map<std::string, LineStyle> styles_;
};

/// One label, with a sample of its line in front of it.
struct LegendEntry {
  std::string text{};   ///< shortened to the available width
  std::string label{};  ///< empty if there is no sample line, as for "and 5 more"
  double left = 0;      ///< position of the sample line, from the legend's left end
  size_t row = 0;
};

struct Legend {
  std::vector<LegendEntry> entries{};
  size_t rows = 0;
};

inline constexpr double kLegendRow = 16;

/// Places the labels of a chart in rows of this width. If they need more than `most_rows`, the last entry says how many
/// were omitted. The legend of a single line without a label is empty.
Legend make_legend(const Chart& chart, double width, size_t most_rows);

/// Draws the legend with its upper left corner at `place`.
void draw_legend(const Legend& legend, PixelPoint place, const LineStyles& styles, Canvas& canvas);

/// Returns the text, or its beginning and end with "…" between them, so that it is not wider than `width` pixels.
std::string shortened(const std::string& text, double width);

}  // namespace ddp::curves
