#include "base/text_table.h"

#include <algorithm>
#include <cstdint>

#include "base/joined.h"
#include "base/text_width.h"

namespace ddp::detail {
namespace {

using Row = std::vector<std::string>;

constexpr std::string_view kColumnSeparator = "  ";
constexpr std::size_t kDetailIndent = 4;

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(text_columns(text));
}

std::vector<std::size_t> widths_of(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

std::size_t fitting(const std::vector<std::size_t>& widths, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    used += kColumnSeparator.size() + widths[i];
    if (used > columns) return std::max<std::size_t>(i, 1);
  }
  return widths.size();
}

std::string details(const Row& titles, const Row& row, std::size_t first, std::size_t columns) {
  std::string text;
  for (std::size_t i = first; i < row.size(); ++i) {
    if (row[i].empty()) continue;
    append_item(text, titles[i] + (titles[i].empty() ? "" : " ") + row[i]);
  }
  return wrapped_text(text, columns, std::string(std::min(kDetailIndent, columns / 2), ' '));
}

}  // namespace

std::string text_table(const std::vector<Row>& rows, std::size_t columns) {
  if (rows.empty()) return "";
  const auto widths = widths_of(rows);
  const std::size_t shown = columns == 0 ? widths.size() : fitting(widths, columns);
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < shown; ++i) {
      line.append(kColumnSeparator).append(row[i]).append(widths[i] - width_of(row[i]), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (columns > 0) line = cut_to_columns(line, static_cast<std::int64_t>(columns));
    text.append(line).append("\n");
    if (&row != &rows.front()) text += details(rows.front(), row, shown, columns);
  }
  return text;
}

std::string wrapped_text(std::string_view text, std::size_t columns, const std::string& indent) {
  const std::size_t room = columns - std::min(indent.size(), columns - 1);
  std::string lines;
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) lines.append(indent).append(line).append("\n");
    line.clear();
  };
  while (!text.empty()) {
    std::string word(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (!line.empty() && width_of(line) + 1 + width_of(word) > room) end_line();
    while (width_of(word) > room) {
      const std::string part = cut_to_columns(word, static_cast<std::int64_t>(room));
      if (part.empty()) break;  // a wide character does not fit into a single column
      lines.append(indent).append(part).append("\n");
      word.erase(0, part.size());
    }
    line.append(line.empty() ? "" : " ").append(word);
  }
  end_line();
  return lines;
}

}  // namespace ddp::detail
