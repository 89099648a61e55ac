#include "base/utf8.h"

#include <cstdint>

namespace ddp::detail {
namespace {

// The well-formed multibyte characters (table 3-7 of the Unicode standard): the ranges of the first and second byte,
// and the length. All further bytes are 0x80 to 0xBF.
struct Form {
  std::uint8_t first_low, first_high;
  std::uint8_t second_low, second_high;
  std::size_t length;
};
constexpr Form kForms[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

bool is_control(char32_t code) {
  return code < 0x20 || (0x7F <= code && code < 0xA0);
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The marks, embeddings, overrides and isolates of the bidirectional algorithm, and the line and paragraph separators.
bool is_bidi_control(char32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || (0x2028 <= code && code <= 0x202E) ||
         (0x2066 <= code && code <= 0x2069);
}

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  const auto is_in = [&](std::size_t i, std::uint8_t low, std::uint8_t high) {
    return i < text.size() && static_cast<std::uint8_t>(text[i]) >= low && static_cast<std::uint8_t>(text[i]) <= high;
  };
  if (is_in(0, 0, 0x7F)) return 1;
  for (const Form& form : kForms) {
    if (!is_in(0, form.first_low, form.first_high)) continue;
    bool valid = is_in(1, form.second_low, form.second_high);
    for (std::size_t i = 2; i < form.length; ++i) valid = valid && is_in(i, 0x80, 0xBF);
    return valid ? form.length : 0;
  }
  return 0;
}

Utf8Character first_character(std::string_view text) noexcept {
  const std::size_t length = utf8_length(text);
  if (length == 0) return {.code = 0xFFFD, .length = 1};
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<std::uint8_t>(text[i])); };
  if (length == 1) return {.code = byte(0), .length = 1};
  char32_t code = byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3F);
  return {.code = code, .length = length};
}

std::size_t whole_characters(std::string_view text) noexcept {
  constexpr std::size_t kMaxBytes = 4;
  for (std::size_t i = 1; i < kMaxBytes && i <= text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[text.size() - i]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t wanted = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return wanted > i ? text.size() - i : text.size();
  }
  return text.size();
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    valid += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

std::string shown_text(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const bool is_valid = utf8_length(text) > 0;
    if (is_control(character.code) || is_bidi_control(character.code)) {
      shown += ' ';
    } else {
      shown += is_valid ? text.substr(0, character.length) : kReplacement;
    }
    text.remove_prefix(character.length);
  }
  return shown;
}

}  // namespace ddp::detail
