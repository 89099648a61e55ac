#include "launcher/os/terminal/terminal_row.h"

#include <algorithm>

#include "launcher/os/system/utf8.h"
#include "launcher/os/terminal/terminal_parser.h"

namespace launcher {
namespace {

constexpr std::string_view kDefaultStyle = "\x1b[m";
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
// Limits the characters that join another one, and a series of sequences without a return to the default.
constexpr std::size_t kMaxCellBytes = 64;
constexpr std::size_t kMaxStyleBytes = 128;

// U+0080 to U+009F, which begin sequences too.
bool is_c1_control(std::string_view character) {
  return character.size() == 2 && character[0] == '\xc2' && static_cast<unsigned char>(character[1]) < 0xa0;
}

bool are_equal(const TextStyle& a, const TextStyle& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

void TerminalRow::split_at(std::size_t column) {
  if (column == 0 || column >= cells_.size() || !cells_[column].text.empty()) return;
  cells_[column - 1].text.assign(1, ' ');
  cells_[column].text.assign(1, ' ');
}

void TerminalRow::put(std::size_t column, std::string_view character, int width, const TextStyle& style) {
  if (width == 0) {
    if (column == 0 || column > cells_.size()) return;
    std::size_t before = column - 1;
    if (cells_[before].text.empty() && before > 0) --before;
    if (cells_[before].text.size() + character.size() <= kMaxCellBytes) cells_[before].text.append(character);
    return;
  }
  const std::size_t end = column + static_cast<std::size_t>(width);
  split_at(column);
  split_at(end);
  if (cells_.size() < end) cells_.resize(end);
  cells_[column].text = is_character(character) && !is_c1_control(character) ? character : kReplacement;
  cells_[column].style = style;
  if (width == 2) {
    cells_[column + 1].text.clear();
    cells_[column + 1].style = style;
  }
}

void TerminalRow::erase(std::size_t begin, std::size_t end) {
  end = std::min(end, cells_.size());
  if (begin >= end) return;
  split_at(begin);
  split_at(end);
  if (end == cells_.size()) {
    cells_.resize(begin);
  } else {
    std::fill(cells_.begin() + static_cast<std::ptrdiff_t>(begin), cells_.begin() + static_cast<std::ptrdiff_t>(end),
              Cell{});
  }
}

std::size_t TerminalRow::columns() const {
  std::size_t count = cells_.size();
  while (count > 0 && cells_[count - 1].is_blank()) --count;
  return count;
}

TerminalRow TerminalRow::behind(const TerminalRow& left) const {
  TerminalRow both = left;
  both.cells_.insert(both.cells_.end(), cells_.begin(), cells_.end());
  return both;
}

std::string TerminalRow::text(std::size_t most) const {
  const std::size_t shown = columns();
  std::size_t end = std::min(most, shown);
  if (end < shown && end > 0 && cells_[end].text.empty()) --end;  // does not show half of a character
  std::string text;
  TextStyle style;
  for (std::size_t column = 0; column < end; ++column) {
    const Cell& cell = cells_[column];
    if (!are_equal(cell.style, style)) {
      if (style != nullptr) text.append(kDefaultStyle);
      if (cell.style != nullptr) text.append(*cell.style);
      style = cell.style;
    }
    text.append(cell.text);
  }
  if (style != nullptr) text.append(kDefaultStyle);
  return text;
}

TerminalRow row_of(std::string_view text, const CharacterWidth& widths) {
  TerminalRow row;
  TerminalParser parser;
  TextStyle style;
  std::size_t column = 0;
  for (const char byte : text) {
    for (bool again = true; again;) {
      const TerminalParser::Token token = parser.take(byte);
      again = token.again;
      if (token.kind == TerminalParser::Kind::kSequence && token.final == 'm') {
        style = with_parameters(style, token.parameters);
      }
      if (token.kind != TerminalParser::Kind::kCharacter) continue;
      const int width = widths.of(token.text);
      row.put(column, token.text, width, style);
      column += static_cast<std::size_t>(width);
    }
  }
  return row;
}

TextStyle with_parameters(const TextStyle& style, std::string_view parameters) {
  const bool is_reset = parameters.empty() || parameters == "0" || parameters.starts_with("0;");
  if (parameters.empty() || parameters.find_first_not_of("0;") == std::string_view::npos) return nullptr;
  std::string sequences;
  if (!is_reset && style != nullptr && style->size() < kMaxStyleBytes) sequences = *style;
  sequences.append("\x1b[").append(parameters).append("m");
  return std::make_shared<const std::string>(std::move(sequences));
}

}  // namespace launcher
