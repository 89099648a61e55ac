// Comma-separated values as RFC 4180 defines them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

/// The text as a field: quoted where it has a comma, a quote or a line break in it.
std::string csv_field(std::string_view text);

/// The fields of the row that begins at `at`, which moves after it.
std::vector<std::string> csv_row(std::string_view content, size_t& at);

/// The fields of the first row of a file's content.
std::vector<std::string> csv_first_row(std::string_view content);

}  // namespace ddp
