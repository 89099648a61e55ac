// Paints rows that change at the bottom of a terminal, below lines that stay. Knows what it painted before; uses
// nothing but "up", "down", "erase row" and colours, and leaves the terminal in no mode. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/terminal/live_lines.h"

namespace launcher {

class LiveScreen {
 public:
  // `reflows`: when the terminal becomes narrower, it moves the ends of rows that are too long to rows of their own.
  explicit LiveScreen(bool reflows) : reflows_(reflows) {}

  // Appends what puts `lines` (the last one perhaps without its newline) above and shows `rows`, each at most `columns`
  // wide, instead of those before.
  void paint(std::string_view lines, std::vector<ShownRow> rows, std::size_t columns, std::string& out);
  // The cursor to a new line below the rows, which stay as they are and are not ours any more.
  void leave(std::string& out);
  // Somebody else has written to the terminal: the cursor is in a line of its own.
  void forget() { painted_.clear(); }
  // The cursor is behind a line without its newline.
  bool is_in_line() const { return in_line_; }

 private:
  std::size_t height(const ShownRow& row, std::size_t columns) const;
  void go_to_first_row(std::size_t columns, std::string& out) const;
  void erase_rows(std::size_t columns, std::string& out) const;
  void repaint_in_place(const std::vector<ShownRow>& rows, std::size_t columns, std::string& out) const;

  bool reflows_;
  std::vector<ShownRow> painted_;  // the cursor is at the beginning of the last one
  std::size_t columns_ = 0;
  bool in_line_ = false;  // a line without its newline is above
};

}  // namespace launcher
