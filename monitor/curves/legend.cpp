#include "monitor/curves/legend.h"

#include <array>
#include <set>

#include "base/utf8.h"
#include "monitor/curves/text_width.h"

namespace ddp::curves {
namespace {

// The colours of Okabe and Ito, which can be distinguished with any kind of colour vision.
constexpr std::array<Colour, 7> kColours = {{{0x00, 0x72, 0xB2},
                                             {0xD5, 0x5E, 0x00},
                                             {0x00, 0x9E, 0x73},
                                             {0xCC, 0x79, 0xA7},
                                             {0xE6, 0x9F, 0x00},
                                             {0x56, 0xB4, 0xE9},
                                             {0x00, 0x00, 0x00}}};
constexpr Colour kTextColour{0x33, 0x33, 0x33};
constexpr double kSample = 18;  // length of the sample line
constexpr double kToLabel = 5;  // from the sample line to the label
constexpr double kToNext = 16;  // from a label to the next entry
/// Allows for fonts of the viewer that are wider than text_width() estimates.
constexpr double kSizeReserve = 1.1;

double label_width(const std::string& text) {
  return kSizeReserve * text_width(text, kFontSize);
}

/// Places entries in a row. Entries that do not fit are placed in the next row.
class Rows {
 public:
  explicit Rows(double width) : width_(width) {}

  void add(const std::string& label, const std::string& text) {
    const double sample = label.empty() ? 0 : kSample + kToLabel;
    const std::string shown = shortened(text, width_ - sample);
    const double needed = sample + label_width(shown);
    if (left_ > 0 && left_ + needed > width_) {
      left_ = 0;
      ++row_;
    }
    legend_.entries.push_back({.text = shown, .label = label, .left = left_, .row = row_});
    legend_.rows = row_ + 1;
    left_ += needed + kToNext;
  }

  const Legend& legend() const { return legend_; }

 private:
  double width_;
  double left_ = 0;
  size_t row_ = 0;
  Legend legend_;
};

/// Returns the largest count up to `most` for which `fits` is true, or 0. It uses bisection, because a malicious file
/// could make a linear search too long.
template <typename Fits>
size_t most_that(Fits fits, size_t most) {
  size_t least = 0;
  while (least < most) {
    const size_t middle = least + (most - least + 1) / 2;
    if (fits(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

Legend legend_of(const std::vector<std::string>& labels, size_t count, double width) {
  Rows rows(width);
  for (size_t i = 0; i < count; ++i) rows.add(labels[i], labels[i]);
  if (count < labels.size()) rows.add("", "and " + std::to_string(labels.size() - count) + " more");
  return rows.legend();
}

}  // namespace

LineStyles::LineStyles(const std::vector<Chart>& charts) {
  const std::array<std::vector<double>, 4> kDashes = {{{}, {6, 3}, {2, 3}, {9, 3, 2, 3}}};
  std::set<std::string> labels;
  for (const Chart& chart : charts) {
    for (const Line& line : chart.lines) labels.insert(line.label);
  }
  size_t count = 0;
  for (const std::string& label : labels) {
    styles_[label] = {.colour = kColours[count % kColours.size()],
                      .dashes = kDashes[count / kColours.size() % kDashes.size()]};
    ++count;
  }
}

Legend make_legend(const Chart& chart, double width, size_t most_rows) {
  if (chart.lines.size() == 1 && chart.lines[0].label.empty()) return {};
  std::vector<std::string> labels;
  for (const Line& line : chart.lines) labels.push_back(line.label);
  const auto fits = [&](size_t count) { return legend_of(labels, count, width).rows <= most_rows; };
  return legend_of(labels, fits(labels.size()) ? labels.size() : most_that(fits, labels.size() - 1), width);
}

void draw_legend(const Legend& legend, PixelPoint place, const LineStyles& styles, Canvas& canvas) {
  for (const LegendEntry& entry : legend.entries) {
    const double left = place.x + entry.left;
    const double base = place.y + static_cast<double>(entry.row) * kLegendRow + kFontSize;
    double text_left = left;
    if (!entry.label.empty()) {
      canvas.lines({{{left, base - kFontSize / 3}, {left + kSample, base - kFontSize / 3}}}, styles.of(entry.label));
      text_left += kSample + kToLabel;
    }
    canvas.text({text_left, base}, {.colour = kTextColour}, entry.text);
  }
}

std::string shortened(const std::string& text, double width) {
  if (label_width(text) <= width) return text;
  std::vector<std::string> characters;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = detail::first_character(rest).length;
    characters.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  // The text is cut in the middle, because the names of runs differ at their beginnings or ends.
  const auto keeping = [&](size_t count) {
    const size_t ahead = (count + 1) / 2;
    std::string kept;
    for (size_t i = 0; i < ahead; ++i) kept += characters[i];
    kept += "…";
    for (size_t i = characters.size() - (count - ahead); i < characters.size(); ++i) kept += characters[i];
    return kept;
  };
  const auto fits = [&](size_t count) { return label_width(keeping(count)) <= width; };
  return keeping(most_that(fits, characters.size() - 1));
}

}  // namespace ddp::curves
