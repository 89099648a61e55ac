#include "launcher/options/shown_options.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/joined.h"

namespace launcher {
namespace {

bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace

std::string ShownOption::usage() const {
  std::string text = ddp::detail::joined(names);
  if (value.empty()) return text;
  return text.append(value_may_be_missing ? "[=" : " ").append(value).append(value_may_be_missing ? "]" : "");
}

std::vector<std::string> ShownOption::words() const {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find('|', begin), value.size());
    if (std::string part = value.substr(begin, end - begin); is_word(part)) found.push_back(std::move(part));
    begin = end + 1;
  }
  return found;
}

std::string ShownOption::summary() const {
  return plain_text(meaning) + (fallback.empty() ? "" : " [" + fallback + "]");
}

std::string without_links(std::string_view markdown) {
  std::string text;
  while (!markdown.empty()) {
    const std::size_t middle = markdown.find("](");
    const std::size_t begin = markdown.rfind('[', middle);
    const std::size_t end = markdown.find(')', middle);
    if (middle == std::string_view::npos || begin == std::string_view::npos || end == std::string_view::npos) break;
    text.append(markdown.substr(0, begin)).append(markdown.substr(begin + 1, middle - begin - 1));
    markdown.remove_prefix(end + 1);
  }
  return text.append(markdown);
}

std::string plain_text(std::string_view markdown) {
  std::string text = without_links(markdown);
  std::erase(text, '`');
  return text;
}

}  // namespace launcher
