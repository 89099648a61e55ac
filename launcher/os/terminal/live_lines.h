// Separates the output that one rank writes to a terminal into finished lines and rows that it still redraws: a
// progress bar that returns with a carriage return, or several bars for which the cursor moves up and down. Pure.
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
  // The rows that one rank can redraw, and the columns of one row. Rows above and columns beyond are finished.
  static constexpr std::size_t kMaxRows = 32;
  static constexpr std::size_t kMaxColumns = 4096;

  // `widths` must outlive it.
  explicit LiveLines(const CharacterWidth& widths) : widths_(&widths) {}

  void set_prefix(std::string prefix);
  // Appends the lines that `bytes` finish to `finished`, each after the prefix. A line passes unchanged unless it
  // redraws itself; then it is the text that a terminal would finally show.
  void feed(std::string_view bytes, std::string& finished);
  // True while a row above the current one may still be redrawn: the rank has a short time to move up again.
  bool is_waiting() const { return row_ > kept_rows_; }
  // Call it when that time has passed.
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
  std::string partial_;  // a line that has not redrawn itself yet

  // Empty as long as nothing is redrawn.
  std::deque<TerminalRow> rows_;
  std::size_t row_ = 0;
  std::size_t column_ = 0;
  TextStyle style_;
  TerminalParser parser_;
  std::size_t kept_rows_ = 0;       // rows above the cursor to which the rank has returned before
  std::size_t rows_moved_up_ = 0;   // rows moved up since the last line feed, in one step or in several
  std::size_t lines_since_up_ = 0;  // after too many, kept_rows_ is reset
};

// True when a line does more than append characters and colours; its own line end does not count. Pure.
bool redraws_itself(std::string_view line);

}  // namespace launcher
