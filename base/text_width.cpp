#include "base/text_width.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/character_widths.h"
#include "base/utf8.h"

namespace ddp {
namespace {

bool is_within(std::span<const CharacterRange> ranges, char32_t character) {
  const auto range = std::partition_point(ranges.begin(), ranges.end(),
                                          [=](const CharacterRange& candidate) { return candidate.last < character; });
  return range != ranges.end() && range->first <= character;
}

}  // namespace

int column_width(char32_t character) {
  if (character < 0x300) return 1;  // the fast path for most text
  if (is_within(kNoColumn, character)) return 0;
  return is_within(kTwoColumns, character) ? 2 : 1;
}

int64_t text_columns(std::string_view text) {
  int64_t columns = 0;
  while (!text.empty()) {
    const detail::Utf8Character character = detail::first_character(text);
    columns += column_width(character.code);
    text.remove_prefix(character.length);
  }
  return columns;
}

std::string cut_to_columns(std::string_view text, int64_t columns) {
  size_t end = 0;
  while (end < text.size()) {
    const detail::Utf8Character character = detail::first_character(text.substr(end));
    columns -= column_width(character.code);
    if (columns < 0) break;
    end += character.length;
  }
  return std::string(text.substr(0, end));
}

}  // namespace ddp
