// A terminal's screen: as much of one as ddprun may use, and an error for everything else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/terminal/character_width.h"
#include "launcher/os/terminal/terminal_parser.h"

namespace launcher {

class ScreenModel {
 public:
  ScreenModel(std::size_t height, std::size_t columns) : height_(height), columns_(columns), lines_(1) {}

  // Newlines return the carriage, as a cooked terminal's do.
  void feed(std::string_view bytes) {
    for (const char byte : bytes) {
      for (bool again = true; again;) {
        const TerminalParser::Token token = parser_.take(byte);
        again = token.again;
        apply(token);
      }
    }
  }

  // All rows, those that scrolled out too, without blanks at their ends and without empty ones at the end.
  std::vector<std::string> rows() const {
    std::vector<std::string> rows = history_;
    for (const Line& line : lines_) rows.push_back(text_of(line));
    while (!rows.empty() && rows.back().empty()) rows.pop_back();
    return rows;
  }
  // Where the cursor is, counted from the first row of all.
  std::size_t cursor_row() const { return history_.size() + row_; }
  std::size_t cursor_column() const { return column_; }

 private:
  using Line = std::vector<std::string>;  // a text per column; "" behind a wide character

  static std::string text_of(const Line& line) {
    std::string text;
    for (const std::string& cell : line) text += cell;
    text.resize(text.find_last_not_of(' ') + 1);
    return text;
  }
  // Half of a wide character is nothing.
  static void split_at(Line& line, std::size_t column) {
    if (column == 0 || column >= line.size() || !line[column].empty()) return;
    line[column - 1] = " ";
    line[column] = " ";
  }
  void apply(const TerminalParser::Token& token) {
    using Kind = TerminalParser::Kind;
    if (token.kind == Kind::kOther) throw std::runtime_error("a sequence that may not be used");
    if (token.kind == Kind::kCharacter) put(std::string(token.text));
    if (token.kind == Kind::kSequence) sequence(std::string(token.parameters), token.final);
    if (token.kind != Kind::kControl) return;
    if (token.text == "\n") {
      down_or_scroll();
      column_ = 0;
    } else if (token.text == "\r") {
      column_ = 0;
    } else {
      throw std::runtime_error("a control character that may not be used");
    }
  }
  void sequence(const std::string& parameters, char final) {
    const std::size_t count = parameters.empty() ? 1 : std::max<std::size_t>(1, std::stoul(parameters));
    // In a full row the cursor stands on the last character.
    const std::size_t column = std::min(column_, columns_ - 1);
    if (final == 'A') {
      row_ -= std::min(row_, count);
    } else if (final == 'B') {
      row_ = std::min(row_ + count, height_ - 1);
      if (lines_.size() <= row_) lines_.resize(row_ + 1);
    } else if (final == 'K' && parameters == "2") {
      lines_[row_].clear();
    } else if (final == 'K' && parameters.empty()) {
      split_at(lines_[row_], column);
      if (lines_[row_].size() > column) lines_[row_].resize(column);
    } else if (final != 'm') {
      throw std::runtime_error("a sequence that may not be used: ESC [ " + parameters + final);
    }
  }
  void put(const std::string& character) {
    const auto width = static_cast<std::size_t>(widths_.of(character));
    if (width == 0) {
      if (column_ > 0 && column_ <= lines_[row_].size()) lines_[row_][column_ - 1] += character;
      return;
    }
    if (column_ + width > columns_) {
      down_or_scroll();
      column_ = 0;
    }
    Line& line = lines_[row_];
    if (line.size() < column_ + width) line.resize(column_ + width, " ");
    split_at(line, column_);
    split_at(line, column_ + width);
    line[column_] = character;
    if (width == 2) line[column_ + 1] = "";
    column_ += width;
  }
  void down_or_scroll() {
    ++row_;
    if (row_ == lines_.size()) lines_.emplace_back();
    if (row_ < height_) return;
    history_.push_back(text_of(lines_.front()));
    lines_.erase(lines_.begin());
    --row_;
  }

  std::size_t height_;
  std::size_t columns_;
  std::vector<std::string> history_;
  std::vector<Line> lines_;
  std::size_t row_ = 0;
  std::size_t column_ = 0;
  TerminalParser parser_;
  CharacterWidth widths_;
};

}  // namespace launcher
