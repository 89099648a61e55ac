#include "launcher/local/output/output_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "launcher/os/system/unique_fd.h"
#include "launcher/os/terminal/terminal_parser.h"

namespace launcher {
namespace {

// Removes what a terminal does not show: colours, titles, the addresses of links.
std::string without_escape_sequences(std::string_view text) {
  using Kind = TerminalParser::Kind;
  std::string plain;
  TerminalParser parser;
  for (const char byte : text) {
    for (bool again = true; again;) {
      const TerminalParser::Token token = parser.take(byte);
      again = token.again;
      if (token.kind == Kind::kCharacter || token.kind == Kind::kControl) plain.append(token.text);
    }
  }
  return plain;
}

// Removes the first bytes if they are the rest of a character whose beginning was cut off.
std::string_view skip_partial_character(std::string_view text) {
  for (int most = 3; most > 0 && !text.empty() && (static_cast<unsigned char>(text.front()) & 0xc0U) == 0x80; --most) {
    text.remove_prefix(1);
  }
  return text;
}

std::string_view after_last_carriage_return(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t overwritten = line.rfind('\r');
  return overwritten == std::string_view::npos ? line : line.substr(overwritten + 1);
}

std::string shown_lines(std::string_view text, bool is_cut) {
  std::vector<std::string> lines;
  if (is_cut) text = skip_partial_character(text);
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    lines.push_back(without_escape_sequences(after_last_carriage_return(text.substr(0, newline))));
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
  }
  if (is_cut && lines.size() > 1) lines.erase(lines.begin());  // the first line is incomplete
  const auto is_blank = [](const std::string& line) { return line.find_first_not_of(" \t") == std::string::npos; };
  std::erase_if(lines, is_blank);
  if (lines.size() > OutputTail::kLines) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(OutputTail::kLines));
  }
  std::string shown;
  for (const std::string& line : lines) shown.append(line).append("\n");
  return shown;
}

}  // namespace

void OutputTail::add(std::string_view bytes) {
  if (bytes.size() > kBytes) {
    bytes.remove_prefix(bytes.size() - kBytes);
    bytes_.clear();
    is_truncated_ = true;
  } else if (bytes_.size() + bytes.size() > 2 * kBytes) {  // moves the bytes rarely, not for each line
    bytes_.erase(0, bytes_.size() - kBytes);
    is_truncated_ = true;
  }
  bytes_.append(bytes);
}

std::string OutputTail::lines() const {
  const std::string_view kept(bytes_);
  if (kept.size() <= kBytes) return shown_lines(kept, is_truncated_);
  return shown_lines(kept.substr(kept.size() - kBytes), true);
}

std::string last_lines_of_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  const off_t begin = std::max<off_t>(0, status.st_size - static_cast<off_t>(OutputTail::kBytes));
  std::string text(OutputTail::kBytes, '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), begin);
  if (count <= 0) return "";
  text.resize(static_cast<std::size_t>(count));
  return shown_lines(text, begin > 0);
}

}  // namespace launcher
