#include "launcher/os/terminal/character_width.h"

#include <wchar.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

std::uint32_t code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first;
  std::uint32_t code = first & (0x7fU >> character.size());
  for (const char c : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(c) & 0x3fU);
  return code;
}

}  // namespace

CharacterWidth::~CharacterWidth() {
  if (locale_ != nullptr) ::freelocale(locale_);
}

int CharacterWidth::of(std::string_view character) const {
  if (character.size() < 2 || !is_character(character)) return 1;
  if (!std::exchange(is_made_, true)) {
    locale_ = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", static_cast<locale_t>(nullptr));
    if (locale_ == nullptr) locale_ = ::newlocale(LC_CTYPE_MASK, "", static_cast<locale_t>(nullptr));
  }
  if (locale_ == nullptr) return 1;
  const locale_t before = ::uselocale(locale_);
  const int width = ::wcwidth(static_cast<wchar_t>(code_point(character)));
  ::uselocale(before);
  return width < 0 ? 1 : std::min(width, 2);
}

}  // namespace launcher
