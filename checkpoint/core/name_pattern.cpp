#include "checkpoint/core/name_pattern.h"

#include <algorithm>

#include "base/utf8.h"

namespace ddp {
namespace {

// The position after the character at `at`. Where the text is not valid UTF-8, it advances by one byte.
size_t after_character(std::string_view name, size_t at) {
  return at + std::max<size_t>(detail::utf8_length(name.substr(at)), 1);
}

// The time is proportional to the product of the lengths: after a mismatch, only the last `*` matches one more
// character.
bool matches_glob(std::string_view name, std::string_view pattern) {
  size_t at = 0, in_pattern = 0;
  size_t star = std::string_view::npos, after_star = 0;
  while (at < name.size()) {
    if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
      star = in_pattern++;
      after_star = at;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == '?') {
      at = after_character(name, at);
      ++in_pattern;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == name[at]) {
      ++at;
      ++in_pattern;
    } else if (star != std::string_view::npos) {
      in_pattern = star + 1;
      at = after_star = after_character(name, after_star);
    } else {
      return false;
    }
  }
  while (in_pattern < pattern.size() && pattern[in_pattern] == '*') ++in_pattern;
  return in_pattern == pattern.size();
}

}  // namespace

bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.find_first_of("*?") != std::string_view::npos) return matches_glob(name, pattern);
  return name == pattern || (name.starts_with(pattern) && name.substr(pattern.size()).starts_with('.'));
}

bool matches_any(std::string_view name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) { return matches(name, pattern); });
}

}  // namespace ddp
