// One row that a program shows on a terminal: characters in columns, with their colours. Pure.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/terminal/character_width.h"

namespace launcher {

// SGR sequences that change a terminal's default to these colours; null: the default.
using TextStyle = std::shared_ptr<const std::string>;

class TerminalRow {
 public:
  // With `width` 1 or 2 the character replaces what is at `column`, counted from 0. With 0 it joins the character
  // before it.
  void put(std::size_t column, std::string_view character, int width, const TextStyle& style);
  // Blanks the columns from `begin` up to, but not including, `end`.
  void erase(std::size_t begin, std::size_t end);
  void clear() { cells_.clear(); }

  // The number of columns without blanks at the end.
  std::size_t columns() const;
  bool is_blank() const { return columns() == 0; }
  // The number of columns including written blanks at the end.
  std::size_t written_columns() const { return cells_.size(); }
  // Returns `left`, including its blanks at the end, followed by this row.
  TerminalRow behind(const TerminalRow& left) const;
  // Returns the bytes that show the row, cut to `most` columns; its colours are reset at the end.
  std::string text(std::size_t most = static_cast<std::size_t>(-1)) const;

 private:
  struct Cell {
    std::string text = std::string(1, ' ');  // empty: the second half of a wide character
    TextStyle style{};
    bool is_blank() const { return text == " " && style == nullptr; }
  };
  // The other half of a wide character is erased.
  void split_at(std::size_t column);

  std::vector<Cell> cells_;
};

// Returns the row for a text without line ends, with its colours.
TerminalRow row_of(std::string_view text, const CharacterWidth& widths);

// Returns the colours after one more SGR sequence with these parameters.
TextStyle with_parameters(const TextStyle& style, std::string_view parameters);

}  // namespace launcher
