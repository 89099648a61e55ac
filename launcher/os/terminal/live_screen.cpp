#include "launcher/os/terminal/live_screen.h"

#include <utility>

namespace launcher {
namespace {

constexpr std::string_view kEraseToEndOfRow = "\x1b[K";
constexpr std::string_view kEraseRow = "\x1b[2K";
constexpr std::string_view kDown = "\x1b[B";
constexpr std::string_view kDefaultColours = "\x1b[m";

void go_up(std::size_t rows, std::string& out) {
  if (rows > 0) out.append("\x1b[").append(std::to_string(rows)).append("A");
}

void paint_row(const ShownRow& row, std::size_t columns, std::string& out) {
  out.append(row.text);
  // In a full row the cursor is on the last character, which would be erased.
  if (row.columns < columns) out.append(kEraseToEndOfRow);
}

}  // namespace

std::size_t LiveScreen::height(const ShownRow& row, std::size_t columns) const {
  if (!reflows_ || row.columns <= columns) return 1;
  return (row.columns + columns - 1) / columns;
}

void LiveScreen::go_to_first_row(std::size_t columns, std::string& out) const {
  std::size_t rows = 0;
  for (std::size_t i = 0; i + 1 < painted_.size(); ++i) rows += height(painted_[i], columns);
  out.append("\r");
  go_up(rows, out);
}

// Row by row: some terminals keep what "erase to the end of the screen" erases, when that is all of the screen.
void LiveScreen::erase_rows(std::size_t columns, std::string& out) const {
  if (painted_.empty()) return;
  go_to_first_row(columns, out);
  std::size_t rows = 0;
  for (const ShownRow& row : painted_) rows += height(row, columns);
  for (std::size_t i = 0; i < rows; ++i) out.append(i > 0 ? kDown : "").append(kEraseRow);
  go_up(rows - 1, out);
}

void LiveScreen::repaint_in_place(const std::vector<ShownRow>& rows, std::size_t columns, std::string& out) const {
  go_to_first_row(columns, out);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) out.append("\r\n");
    // The last one always: what somebody typed, ^C for instance, is there.
    if (rows[i] != painted_[i] || i + 1 == rows.size()) paint_row(rows[i], columns, out);
  }
}

void LiveScreen::paint(std::string_view lines, std::vector<ShownRow> rows, std::size_t columns, std::string& out) {
  if (lines.empty() && rows == painted_ && columns == columns_) return;
  if (lines.empty() && !rows.empty() && rows.size() == painted_.size() && columns == columns_) {
    repaint_in_place(rows, columns, out);
  } else {
    erase_rows(columns, out);
    out.append(lines);
    if (!lines.empty()) in_line_ = lines.back() != '\n';
    if (!rows.empty()) {
      if (std::exchange(in_line_, false)) out.append("\r\n");
      out.append(kDefaultColours);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i > 0) out.append("\r\n");
      paint_row(rows[i], columns, out);
    }
  }
  // What is typed now must not need a row of its own: the next one would be wrong by one.
  if (!rows.empty()) out.append("\r");
  painted_ = std::move(rows);
  columns_ = columns;
}

void LiveScreen::leave(std::string& out) {
  if (painted_.empty()) return;
  out.append("\r");
  paint_row(painted_.back(), columns_, out);
  out.append("\r\n");
  painted_.clear();
}

}  // namespace launcher
