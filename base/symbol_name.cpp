#include "base/symbol_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/symbol_outline.h"

namespace ddp::detail {
namespace {

constexpr std::string_view kMangled = "_Z";
constexpr std::string_view kLeftOut = "...";

// `open`...`close` of the outermost level become `instead`; the same text where they do not fit.
std::string without(std::string_view name, char open, char close, std::string_view instead) {
  constexpr std::string_view kKept = "(anonymous namespace)";
  std::string text;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth == 0 && name.substr(i).starts_with(kKept)) {
      text += kKept;
      i += kKept.size() - 1;
      continue;
    }
    // operator<, operator<<, operator->, a->b
    const bool is_sign = open == '<' && (text.ends_with("operator") || text.ends_with("operator<") ||
                                         text.ends_with("operator>") || (i > 0 && name[i - 1] == '-'));
    if (c == open && !(depth == 0 && is_sign)) {
      if (depth++ == 0) text += instead;
    } else if (c == close && depth > 0 && !(open == '<' && name[i - 1] == '-')) {
      --depth;
    } else if (depth == 0) {
      text += c;
    }
  }
  return depth == 0 ? text : std::string(name);
}

}  // namespace

std::string shortened_name(std::string_view name, std::size_t most) {
  std::string text(name);
  if (text.size() > most) text = without(text, '<', '>', "<...>");
  if (text.size() > most) text = without(text, '(', ')', "(...)");
  if (text.size() <= most) return text;
  return text.substr(0, most - std::min(most, kLeftOut.size())).append(kLeftOut);
}

std::string symbol_name(std::string_view symbol, std::size_t most) {
  const std::string plain(symbol.substr(0, symbol.find('@')));
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      plain.starts_with(kMangled) ? abi::__cxa_demangle(plain.c_str(), nullptr, nullptr, &status) : nullptr, std::free);
  if (status == 0 && readable) return shortened_name(readable.get(), most);
  const std::string outline = outline_of_symbol(plain);
  return shortened_name(outline.empty() ? plain : outline, most);
}

}  // namespace ddp::detail
