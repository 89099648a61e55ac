// Cuts what one rank writes to a terminal into lines that are finished and rows that it is still redrawing: a progress
// bar that goes back with a carriage return, or several that go up and down. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/terminal/character_width.h"
#include "launcher/os/terminal/terminal_parser.h"
#include "launcher/os/terminal/terminal_row.h"

namespace launcher {

struct ShownRow {
  std::string text;
  std::size_t columns = 0;
  bool operator==(const ShownRow&) const = default;
};

class LiveLines {
 public:
  // Rows that one rank can redraw, and columns that one row can have; rows above and columns beyond are finished.
  static constexpr std::size_t kMostRows = 32;
  static constexpr std::size_t kMostColumns = 4096;

  // `widths` must outlive it.
  explicit LiveLines(const CharacterWidth& widths) : widths_(&widths) {}

  void set_prefix(std::string prefix);
  // Appends what `bytes` finish to `finished`, each line after the prefix. A line passes unchanged unless it redraws
  // itself; then it is what a terminal would show in the end.
  void feed(std::string_view bytes, std::string& finished);
  // A row above the one that is being written is finished, unless the rank goes up again: it has a moment for that.
  bool is_waiting() const { return row_ > kept_rows_; }
  // That moment has passed.
  void settle(std::string& finished);
  void finish(std::string& finished);

  // The rows that may change, with their prefix, cut to `columns`.
  std::vector<ShownRow> rows(std::size_t columns) const;

 private:
  bool is_plain() const { return rows_.empty(); }
  void feed_plain(std::string_view& bytes, std::string& finished);
  void interpret(std::string_view bytes, std::string& finished);
  void apply(const TerminalParser::Token& token, std::string& finished);
  void apply_control(char control, std::string& finished);
  void apply_sequence(std::string_view parameters, char final);
  void put(std::string_view character, std::string& finished);
  void line_feed(std::string& finished);
  void go_up(std::size_t rows);
  void go_down(std::size_t rows);
  void erase_in_row(std::size_t mode);
  void erase_in_screen(std::size_t mode);
  void commit(std::size_t rows, std::string& finished);
  void leave_if_empty();

  const CharacterWidth* widths_;
  std::string prefix_;
  TerminalRow prefix_row_;
  std::string partial_;  // of a line that has not redrawn itself yet

  // Empty as long as nothing is redrawn.
  std::deque<TerminalRow> rows_;
  std::size_t row_ = 0;
  std::size_t column_ = 0;
  TextStyle style_;
  TerminalParser parser_;
  std::size_t kept_rows_ = 0;       // above the cursor: the rank has come back to rows that far up
  std::size_t climbed_ = 0;         // rows up since the last line, in one step or in several
  std::size_t lines_since_up_ = 0;  // that end kept_rows_
};

// True when a line does more than add characters and colours at its end, its own line end not counted. Pure.
bool redraws_itself(std::string_view line);

}  // namespace launcher
