// The width of text on a terminal, independent of the process's locale. wcwidth() does not work here: most C++ programs
// never call setlocale(), and without it wcwidth() supports only ASCII.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp {

/// The columns of a character: 2 for East Asian wide characters and emoji, 0 for combining marks.
int column_width(char32_t character);

/// The columns of a line of UTF-8 without control characters. Each byte that is not valid UTF-8 counts as one column,
/// like U+FFFD.
int64_t text_columns(std::string_view text);

/// The longest prefix of the text that fits into `columns`. A wide character that would begin in the last column is
/// omitted.
std::string cut_to_columns(std::string_view text, int64_t columns);

}  // namespace ddp
