#include "launcher/system/shell_quote.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

namespace launcher {
namespace {

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

bool is_plain(char c) {
  constexpr std::string_view kPlain = "_-+=./:,@%";
  return static_cast<unsigned char>(c) >= 0x80 || std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         kPlain.find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quote(std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  const bool has_control = std::any_of(word.begin(), word.end(), is_control);
  std::string quoted = has_control ? "$'" : "'";
  for (const char c : word) {
    if (is_control(c)) {
      std::array<char, 5> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\%03o", static_cast<unsigned>(static_cast<unsigned char>(c)));
      quoted += escaped.data();
    } else if (c == '\'') {
      quoted += has_control ? "\\'" : "'\\''";
    } else if (c == '\\' && has_control) {
      quoted += "\\\\";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace launcher
