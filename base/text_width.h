// How wide a text is on a terminal, whatever the locale of the process: most C++ programs never call setlocale(), and
// wcwidth() knows nothing but ASCII then.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp {

/// Columns of a character: 2 for East Asian wide ones and emoji, 0 for marks that combine with the character before.
int column_width(char32_t character);

/// Columns of a line of UTF-8 without control characters. A byte that is not part of valid UTF-8 counts as one, as
/// U+FFFD would.
int64_t text_columns(std::string_view text);

/// The longest beginning of the text that fits into this many columns. Characters are not split: a wide character that
/// would begin in the last column is left out.
std::string cut_to_columns(std::string_view text, int64_t columns);

}  // namespace ddp
