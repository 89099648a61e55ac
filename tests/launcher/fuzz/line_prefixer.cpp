// The splitter of the ranks' output. An input: how it is cut, then the output; a byte from 0x80 on stands for a run of
// letters, so that lines longer than the limit come up.
#include "launcher/os/terminal/line_prefixer.h"

#include "tests/fuzz/fuzz.h"

namespace {

using launcher::LinePrefixer;

constexpr std::string_view kPrefix = "\1P\2";  // in no input

std::string expand(std::string_view input) {
  std::string text;
  for (const char c : input) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      text.append(std::size_t{byte - 0x7FU} * 200, 'x');
    } else {
      text.push_back(byte < 3 ? '\3' : c);
    }
  }
  return text;
}

std::string prefixed(std::string_view text, std::size_t piece) {
  LinePrefixer prefixer{std::string(kPrefix)};
  std::string out;
  while (!text.empty()) {
    prefixer.feed(text.substr(0, piece), out);
    text.remove_prefix(std::min(piece, text.size()));
  }
  prefixer.finish(out);
  return out;
}

// Takes out what was added and checks each piece: it has one line end at most, and that at its end.
std::string restored(std::string_view out) {
  std::string text;
  while (!out.empty()) {
    fuzz::require(out.starts_with(kPrefix), "every piece begins with the prefix");
    out.remove_prefix(kPrefix.size());
    std::string_view line = out.substr(0, out.find(kPrefix));
    out.remove_prefix(line.size());
    if (line.ends_with(LinePrefixer::kContinues)) line.remove_suffix(LinePrefixer::kContinues.size());
    const std::size_t end = line.find_first_of("\r\n");
    fuzz::require(end == std::string_view::npos || end + 1 == line.size() || line.substr(end) == "\r\n",
                  "a piece holds one line");
    fuzz::require(line.size() <= LinePrefixer::kMaxLineBytes + 2, "a piece is not longer than the limit");
    text += line;
  }
  return text;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {"\x05one line\nanother\n",         "\x03no newline",
          "\x01 10%\r 20%\r 30%\r\nend\n",   "\x07\n\n\r\n\r\r\n\n",
          "\x02\xff\xff\xff\n\xc0",          "\x40\xff\xff\r\xff\xff\r\n",
          std::string("\x04nul\0byte\n", 11)};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes.substr(0, 32));
  const std::size_t cut = std::size_t{1} + input.byte();
  const std::string text = expand(input.rest());
  const std::size_t piece = text.size() < 4096 ? cut : cut * 1021;
  if (text.find(LinePrefixer::kContinues) != std::string::npos) return Outcome::kAccepted;  // not to be told from ours
  const std::string whole = prefixed(text, std::max<std::size_t>(text.size(), 1));
  fuzz::require(restored(whole) == text, "no byte is lost or changed");
  fuzz::require(prefixed(text, piece) == whole, "the pieces are the same however the output is read");
  return Outcome::kAccepted;
}
