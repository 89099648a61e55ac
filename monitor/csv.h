// Comma-separated values as RFC 4180 defines them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

/// Returns the text as a CSV field. It is quoted if it contains a comma, a quote or a line break.
std::string csv_field(std::string_view text);

/// Returns the fields of the row that begins at `at`, and moves `at` to the end of the row.
std::vector<std::string> csv_row(std::string_view content, size_t& at);

/// Returns the fields of the first row of a file's content.
std::vector<std::string> csv_first_row(std::string_view content);

}  // namespace ddp
