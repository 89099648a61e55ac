// What ranks write to a terminal. An input: how it is cut, then the output. Rows stay few and as narrow as they must
// be; what passes without being redrawn passes whole; and nothing that could move the cursor is in a row.
#include "launcher/os/terminal/live_lines.h"

#include "launcher/os/terminal/live_display.h"
#include "tests/fuzz/fuzz.h"

namespace {

using launcher::LiveLines;
using launcher::ShownRow;

// Characters, and sequences that set colours.
bool is_harmless(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x1b) {
      const std::size_t end = text.find('m', i);
      if (end == std::string_view::npos || text[i + 1] != '[') return false;
      i = end;
    } else if (byte < 0x20 || byte == 0x7f) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {"\x05one\nanother\n", "\x43\r10%\r20%\x1b[K\r\x1b[31mdone\x1b[m\n",
          "\xa3\router\n\rinner\x1b[A\router\n\x1b[B\x1b[2K\x1b[1A\x1b[J\n",
          "\x91\r\xe6\x95\xb0\xe6\x95\xb0\b\bx\ty\xcc\x81\xff\xc2\x9b\n",
          "\x7f\x1b]0;title\x07\x1bPq\x1b\\\x1b(B\x1b[?25l\x1b[5;5H\x1b[9999C+\x1b[99A\x1b[3J\x1b[1J"};
}

fuzz::Outcome fuzz::run(std::string_view input) {
  if (input.empty()) return Outcome::kAccepted;
  const std::size_t piece = 1 + static_cast<unsigned char>(input[0]) % 64;
  const std::size_t columns = 1 + static_cast<unsigned char>(input[0]) / 2;
  input.remove_prefix(1);
  const launcher::CharacterWidth widths;
  LiveLines lines(widths);
  lines.set_prefix("P ");
  launcher::LiveScreen screen(true);
  std::string finished;
  std::string painted;
  const bool is_plain = input.find_first_of("\r\x1b") == std::string_view::npos;
  const std::string_view all = input;
  for (int round = 0; !input.empty(); ++round) {
    lines.feed(input.substr(0, piece), finished);
    input.remove_prefix(std::min(piece, input.size()));
    if (round % 3 == 0 && lines.is_waiting()) lines.settle(finished);
    std::vector<ShownRow> rows = lines.rows(columns);
    fuzz::require(rows.size() <= LiveLines::kMaxRows + 1, "few rows");
    for (const ShownRow& row : rows) fuzz::require(row.columns <= columns && is_harmless(row.text), "a harmless row");
    screen.paint("", std::move(rows), columns, painted);
    painted.clear();
  }
  lines.finish(finished);
  fuzz::require(lines.rows(columns).empty(), "no row after the end");
  if (!is_plain) return Outcome::kAccepted;
  std::string expected;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end =
        std::min(all.size(), all.find('\n', begin) == std::string_view::npos ? all.size() : all.find('\n', begin) + 1);
    expected.append("P ").append(all.substr(begin, end - begin));
    begin = end;
  }
  fuzz::require(finished == expected, "plain lines pass whole");
  return Outcome::kAccepted;
}
