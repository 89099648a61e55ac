#include "launcher/options/roff.h"

#include <algorithm>
#include <cstddef>

namespace launcher {
namespace {

constexpr std::size_t kRoffWidth = 80;

const char* escape_of(char c) {
  switch (c) {
    case '\\':
      return "\\e";
    case '-':
      return "\\-";
    case '\'':
      return "\\(aq";
    case '`':
      return "\\(ga";
    case '^':
      return "\\(ha";
    case '~':
      return "\\(ti";
    case '"':
      return "\\(dq";
    default:
      return nullptr;
  }
}

// A line that begins with one of these characters is a request. "\&" before it is an empty character without width.
std::string guarded(std::string line) {
  if (!line.empty() && (line[0] == '.' || line[0] == '\'')) line.insert(0, "\\&");
  return line;
}

// Formats one word of prose; `is_bold` is carried over to the next word.
std::string marked_up(std::string_view word, bool& is_bold) {
  std::string text;
  while (true) {
    const std::size_t mark = word.find('`');
    text += roff_escaped(word.substr(0, mark));
    if (mark == std::string_view::npos) return text;
    is_bold = !is_bold;
    text += is_bold ? "\\fB" : "\\fR";
    word.remove_prefix(mark + 1);
  }
}

}  // namespace

std::string roff_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (const char* escape = escape_of(c)) {
      result += escape;
    } else {
      result += c;
    }
  }
  return result;
}

std::string roff_prose(std::string_view text) {
  std::string lines;
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) lines.append(line).append("\n");
    line.clear();
  };
  bool is_bold = false;
  while (!text.empty()) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    if (word.empty()) continue;
    const std::string shown = marked_up(word, is_bold);
    if (!line.empty() && line.size() + 1 + shown.size() > kRoffWidth) end_line();
    if (line.empty()) {
      line = guarded(shown);
    } else {
      line.append(" ").append(shown);
    }
    if (word.ends_with('.')) end_line();
  }
  end_line();
  return lines;
}

std::string roff_term(std::string_view text) {
  bool is_bold = false;
  return guarded(marked_up(text, is_bold));
}

std::string roff_bold(std::string_view text) {
  return "\\fB" + roff_escaped(text) + "\\fR";
}

std::string roff_italic(std::string_view text) {
  return "\\fI" + roff_escaped(text) + "\\fR";
}

}  // namespace launcher
