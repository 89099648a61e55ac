#include "launcher/output/output_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "launcher/system/unique_fd.h"

namespace launcher {
namespace {

// Leaves out terminal control sequences: ESC [ parameters letter.
std::string without_colours(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain.push_back(text[i]);
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '[') ++i;
    while (i + 1 < text.size() && text[i + 1] >= 0x20 && text[i + 1] < 0x40) ++i;
    if (i + 1 < text.size() && text[i] != '\x1b') ++i;
  }
  return plain;
}

std::string_view last_state(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t overwritten = line.rfind('\r');
  return overwritten == std::string_view::npos ? line : line.substr(overwritten + 1);
}

std::string shown_lines(std::string_view text, bool is_cut) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    lines.push_back(without_colours(last_state(text.substr(0, newline))));
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
  }
  if (is_cut && lines.size() > 1) lines.erase(lines.begin());  // half a line
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
    is_cut_ = true;
  } else if (bytes_.size() + bytes.size() > 2 * kBytes) {  // moved once in a while, not for each line
    bytes_.erase(0, bytes_.size() - kBytes);
    is_cut_ = true;
  }
  bytes_.append(bytes);
}

std::string OutputTail::lines() const {
  const std::string_view kept(bytes_);
  if (kept.size() <= kBytes) return shown_lines(kept, is_cut_);
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
