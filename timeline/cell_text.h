// Formats the cells of the tables in reports.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "base/text_width.h"
#include "base/utf8.h"

namespace ddp::timelines {

inline std::string format(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

// Formats a time, such as "12.3 ms" or "4.1 us". A number that rounding would carry to 1000 gets the next unit.
inline std::string time_text(double nanoseconds) {
  if (nanoseconds < 999.5) return format("%.0f ns", nanoseconds);
  if (nanoseconds < 99.95e3) return format("%.1f us", nanoseconds / 1e3);
  if (nanoseconds < 999.5e3) return format("%.0f us", nanoseconds / 1e3);
  if (nanoseconds < 999.995e6) return format("%.2f ms", nanoseconds / 1e6);
  return nanoseconds < 1e15 ? format("%.2f s", nanoseconds / 1e9) : format("%.3g s", nanoseconds / 1e9);
}

// Formats a share, such as "12.3 %"; "-" if the whole is 0.
inline std::string share_text(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? format("%.1f %%", 100 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

// Formats a size, such as "332 bytes" or "26.5 MB".
inline std::string bytes_text(std::int64_t bytes) {
  if (bytes < 10'000) return std::to_string(bytes) + " bytes";
  const auto number = static_cast<double>(bytes);
  if (bytes < 10'000'000) return format("%.1f kB", number / 1e3);
  return bytes < 10'000'000'000 ? format("%.1f MB", number / 1e6) : format("%.1f GB", number / 1e9);
}

// Shortens a name, which may contain any bytes, and makes it safe for a terminal.
inline std::string shortened(const std::string& name) {
  constexpr std::int64_t kMax = 40;
  const std::string shown = detail::shown_text(name);
  if (shown.find_first_not_of(' ') == std::string::npos) return "(no name)";
  return text_columns(shown) <= kMax ? shown : cut_to_columns(shown, kMax) + "...";
}

// The title of a column for a range of the program. It differs from all titles in `taken`.
inline std::string title(const std::string& name, const std::vector<std::string>& taken) {
  const std::string text = shortened(name);
  return std::find(taken.begin(), taken.end(), text) == taken.end() ? text : "\"" + text + "\"";
}

// Wraps the lines of a report between words if they are wider than the terminal. If `columns` is 0, the lines are
// unchanged. Tables are narrow enough already.
inline std::string fitting(const std::string& text, std::size_t columns) {
  if (columns == 0) return text;
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    const bool fits = static_cast<std::size_t>(text_columns(line)) <= columns;
    lines += fits ? line + "\n" : detail::wrapped_text(line, columns);
    begin = end + 1;
  }
  return lines;
}

}  // namespace ddp::timelines
