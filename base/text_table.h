// Plain-text tables for terminals of any width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

/// Formats the rows in aligned columns; the first row contains the titles. `columns` is the width of the terminal, or 0
/// without a terminal. If a line would be too wide, only the leading columns that fit form the table. The remaining
/// columns follow below each row as "title text", wrapped between words. Cells must not contain control characters.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t columns = 0);

/// Wraps the text into lines of at most `columns` (at least 1), between words. A word that is wider than a line is
/// split. `text` must not contain control characters.
std::string wrapped_text(std::string_view text, std::size_t columns, const std::string& indent = "");

}  // namespace ddp::detail
