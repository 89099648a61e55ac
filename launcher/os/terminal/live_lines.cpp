#include "launcher/os/terminal/live_lines.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "launcher/os/terminal/line_prefixer.h"

namespace launcher {
namespace {

constexpr std::size_t kToEndOfRow = static_cast<std::size_t>(-1);
constexpr std::size_t kTabStop = 8;
// After so many lines without moving up again, a rank no longer redraws.
constexpr std::size_t kTimeout = 8;

// Returns the first parameter; `fallback` if it is missing or 0.
std::size_t number_in(std::string_view parameters, std::size_t fallback) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(parameters.data(), parameters.data() + parameters.size(), number);
  return error != std::errc() || number == 0 ? fallback : number;
}

}  // namespace

bool redraws_itself(std::string_view line) {
  if (line.ends_with('\n')) {
    line.remove_suffix(1);
    while (line.ends_with('\r')) line.remove_suffix(1);
  }
  TerminalParser parser;
  for (std::size_t i = line.find_first_of("\r\x1b"); i < line.size(); ++i) {
    if (parser.is_at_start()) {
      i = line.find_first_of("\r\x1b", i);
      if (i == std::string_view::npos) return false;
      if (line[i] == '\r') return true;
    }
    const TerminalParser::Token token = parser.take(line[i]);
    if (token.again) {
      --i;  // it was not a sequence
    } else if (token.kind == TerminalParser::Kind::kOther) {
      return true;
    } else if (token.kind == TerminalParser::Kind::kSequence && token.final != 'm') {
      return true;
    }
  }
  return false;
}

void LiveLines::set_prefix(std::string prefix) {
  if (prefix == prefix_) return;
  prefix_ = std::move(prefix);
  prefix_row_ = row_of(prefix_, *widths_);
}

void LiveLines::feed(std::string_view bytes, std::string& finished) {
  while (!bytes.empty()) {
    if (is_plain()) {
      feed_plain(bytes, finished);
      continue;
    }
    const std::size_t newline = bytes.find('\n');
    const std::string_view line = bytes.substr(0, newline == std::string_view::npos ? newline : newline + 1);
    interpret(line, finished);
    bytes.remove_prefix(line.size());
  }
}

// Handles one line of `bytes`, or all of them if they contain no line end.
void LiveLines::feed_plain(std::string_view& bytes, std::string& finished) {
  const std::size_t newline = bytes.find('\n');
  const bool is_whole = newline != std::string_view::npos;
  std::string_view line = bytes.substr(0, is_whole ? newline + 1 : newline);
  if (partial_.size() + line.size() > LinePrefixer::kMaxLineBytes) {
    line = line.substr(0, LinePrefixer::kMaxLineBytes - partial_.size());
  }
  bytes.remove_prefix(line.size());
  const bool is_suspicious = line.find('\r') != std::string_view::npos || line.find('\x1b') != std::string_view::npos;
  if (!partial_.empty() || !line.ends_with('\n')) {
    const bool was_suspicious = partial_.find_first_of("\r\x1b") != std::string::npos;
    partial_.append(line);
    if ((is_suspicious || was_suspicious) && redraws_itself(partial_)) {
      interpret(std::exchange(partial_, {}), finished);
    } else if (partial_.ends_with('\n')) {
      finished.append(prefix_).append(std::exchange(partial_, {}));
    } else if (partial_.size() == LinePrefixer::kMaxLineBytes) {
      finished.append(prefix_).append(std::exchange(partial_, {})).append(LinePrefixer::kContinues);
    }
  } else if (is_suspicious && redraws_itself(line)) {
    interpret(line, finished);
  } else {
    finished.append(prefix_).append(line);
  }
}

void LiveLines::interpret(std::string_view bytes, std::string& finished) {
  if (rows_.empty()) rows_.emplace_back();
  for (const char byte : bytes) {
    for (bool again = true; again;) {
      const TerminalParser::Token token = parser_.take(byte);
      again = token.again;
      apply(token, finished);
    }
  }
}

void LiveLines::apply(const TerminalParser::Token& token, std::string& finished) {
  using Kind = TerminalParser::Kind;
  if (rows_.empty()) rows_.emplace_back();
  if (token.kind == Kind::kCharacter) put(token.text, finished);
  if (token.kind == Kind::kControl) apply_control(token.text.front(), finished);
  if (token.kind == Kind::kSequence) apply_sequence(token.parameters, token.final);
}

void LiveLines::apply_control(char control, std::string& finished) {
  switch (control) {
    case '\n':
      line_feed(finished);
      break;
    case '\r':
      column_ = 0;
      break;
    case '\b':
      if (column_ > 0) --column_;
      break;
    case '\t':
      column_ = std::min(kMaxColumns - 1, (column_ / kTabStop + 1) * kTabStop);
      break;
    default:
      break;
  }
}

// Movements beyond the rank's own rows are ignored, because other ranks have those rows.
void LiveLines::apply_sequence(std::string_view parameters, char final) {
  if (parameters.find_first_not_of("0123456789;:") != std::string_view::npos) return;  // private sequences
  const std::size_t count = number_in(parameters, 1);
  switch (final) {
    case 'A':
      go_up(count);
      break;
    case 'B':
      go_down(count);
      break;
    case 'C':
      column_ = std::min(kMaxColumns - 1, column_ + std::min(count, kMaxColumns));
      break;
    case 'D':
      column_ -= std::min(column_, count);
      break;
    case 'E':
      go_down(count);
      column_ = 0;
      break;
    case 'F':
      go_up(count);
      column_ = 0;
      break;
    case 'G':
      column_ = std::min(kMaxColumns, count) - 1;
      break;
    case 'J':
      erase_in_screen(number_in(parameters, 0));
      break;
    case 'K':
      erase_in_row(number_in(parameters, 0));
      break;
    case 'm':
      style_ = with_parameters(style_, parameters);
      break;
    default:
      break;
  }
}

void LiveLines::put(std::string_view character, std::string& finished) {
  const auto width = static_cast<std::size_t>(widths_->of(character));
  if (column_ + width > kMaxColumns) {
    // Wraps the line as a terminal would; no text is lost.
    if (row_ == 0 && rows_.size() == 1) {
      finished.append(prefix_).append(rows_[0].text()).append(LinePrefixer::kContinues);
      rows_[0].clear();
      column_ = 0;
    } else {
      line_feed(finished);
      if (rows_.empty()) rows_.emplace_back();
    }
  }
  rows_[row_].put(column_, character, static_cast<int>(width), style_);
  column_ += width;
}

void LiveLines::line_feed(std::string& finished) {
  column_ = rows_moved_up_ = 0;
  if (++row_ == rows_.size()) rows_.emplace_back();
  if (++lines_since_up_ > kept_rows_ + kTimeout) {
    kept_rows_ = 0;
    settle(finished);
  } else if (row_ > kMaxRows) {
    commit(row_ - kMaxRows, finished);
  }
}

void LiveLines::go_up(std::size_t rows) {
  lines_since_up_ = 0;
  // A larger number means the top of the screen, which does not belong to the rank.
  rows_moved_up_ += std::min(rows, kMaxRows + 1);
  if (rows > row_ && rows_moved_up_ <= kMaxRows) kept_rows_ = std::max(kept_rows_, rows_moved_up_);
  row_ -= std::min(row_, rows);
}

void LiveLines::go_down(std::size_t rows) {
  rows_moved_up_ -= std::min(rows_moved_up_, rows);
  row_ = std::min(rows_.size() - 1, row_ + std::min(rows, kMaxRows));
}

void LiveLines::erase_in_row(std::size_t mode) {
  if (mode == 0) rows_[row_].erase(column_, kToEndOfRow);
  if (mode == 1) rows_[row_].erase(0, column_ + 1);
  if (mode == 2) rows_[row_].clear();
}

void LiveLines::erase_in_screen(std::size_t mode) {
  if (mode == 0) rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(row_) + 1, rows_.end());
  erase_in_row(std::min<std::size_t>(mode, 2));
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (mode >= 2 || (mode == 1 && row < row_)) rows_[row].clear();
  }
}

void LiveLines::commit(std::size_t rows, std::string& finished) {
  for (std::size_t row = 0; row < rows; ++row) finished.append(prefix_).append(rows_[row].text()).append("\n");
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(rows));
  row_ -= rows;
}

void LiveLines::settle(std::string& finished) {
  if (is_waiting()) commit(row_ - kept_rows_, finished);
  leave_if_empty();
}

void LiveLines::leave_if_empty() {
  if (rows_.size() != 1 || !rows_[0].is_blank() || column_ > 0 || kept_rows_ > 0 || !parser_.is_at_start()) return;
  rows_.clear();
  style_ = nullptr;
  lines_since_up_ = 0;
}

void LiveLines::finish(std::string& finished) {
  std::size_t count = rows_.size();
  while (count > 0 && rows_[count - 1].is_blank()) --count;
  row_ = rows_.size();
  commit(count, finished);
  rows_.clear();
  row_ = column_ = kept_rows_ = rows_moved_up_ = 0;
  if (!partial_.empty()) finished.append(prefix_).append(std::exchange(partial_, {}));
}

std::vector<ShownRow> LiveLines::rows(std::size_t columns) const {
  std::size_t count = rows_.size();
  while (count > 0 && rows_[count - 1].is_blank()) --count;
  std::vector<ShownRow> shown;
  for (std::size_t row = 0; row < count; ++row) {
    const TerminalRow whole = rows_[row].behind(prefix_row_);
    shown.push_back({whole.text(columns), std::min(whole.columns(), columns)});
  }
  return shown;
}

}  // namespace launcher
