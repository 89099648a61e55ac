// Tables for people, on terminals of any width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

/// The rows, of which the first one has the titles, with their columns below each other. `columns`: of the terminal; 0
/// without a terminal. Where a line would be wider, the columns at the front that fit stay a table, and below each row
/// the others follow as "title text", in lines that are broken between words. Cells have no control characters.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t columns = 0);

/// Lines of at most `columns` (at least 1), broken between words, and within those that are wider than a line. `text`
/// has no control characters.
std::string wrapped_text(std::string_view text, std::size_t columns, const std::string& indent = "");

}  // namespace ddp::detail
