// One row of what a program shows on a terminal: characters in columns, with their colours. Pure.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/terminal/character_width.h"

namespace launcher {

// SGR sequences that lead from a terminal's default to these colours; null: the default.
using TextStyle = std::shared_ptr<const std::string>;

class TerminalRow {
 public:
  // `width` 1 or 2: over whatever is at `column`, counted from 0. 0: joins the character before it.
  void put(std::size_t column, std::string_view character, int width, const TextStyle& style);
  // Blanks columns from `begin` to before `end`.
  void erase(std::size_t begin, std::size_t end);
  void clear() { cells_.clear(); }

  // Without blanks at the end.
  std::size_t columns() const;
  bool is_blank() const { return columns() == 0; }
  // With them, if they were written.
  std::size_t written_columns() const { return cells_.size(); }
  // All that was written in `left`, followed by this row.
  TerminalRow behind(const TerminalRow& left) const;
  // What shows the row, cut to `most` columns; its own colours end with it.
  std::string text(std::size_t most = static_cast<std::size_t>(-1)) const;

 private:
  struct Cell {
    std::string text = std::string(1, ' ');  // empty: the second half of a wide character
    TextStyle style{};
    bool is_blank() const { return text == " " && style == nullptr; }
  };
  // Half of a wide character is nothing.
  void split_at(std::size_t column);

  std::vector<Cell> cells_;
};

// The row that a text without line ends makes, colours and all.
TerminalRow row_of(std::string_view text, const CharacterWidth& widths);

// The colours after one more SGR sequence with these parameters.
TextStyle with_parameters(const TextStyle& style, std::string_view parameters);

}  // namespace launcher
