#include "monitor/metrics_rows.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "monitor/csv.h"

namespace ddp {
namespace {

bool is_at_least(std::string_view text, int64_t number) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= number;
}

std::optional<size_t> first_csv_row(std::string_view content, const std::string& column, int64_t number) {
  size_t at = 0;
  const auto names = csv_row(content, at);
  const auto place = static_cast<size_t>(std::ranges::find(names, column) - names.begin());
  while (at < content.size()) {
    const size_t begin = at;
    const auto fields = csv_row(content, at);
    if (place < fields.size() && is_at_least(fields[place], number)) return begin;
  }
  return std::nullopt;
}

// Of lines as MetricsFile writes them, in which a quote within a text has a backslash before it.
std::string_view json_number(std::string_view line, const std::string& column) {
  const std::string name = "\"" + column + "\": ";
  for (const std::string& before : {"{" + name, ", " + name}) {
    const size_t found = line.find(before);
    if (found == std::string_view::npos || (before[0] == '{' && found != 0)) continue;
    const std::string_view rest = line.substr(found + before.size());
    return rest.substr(0, rest.find_first_of(",}"));
  }
  return {};
}

}  // namespace

std::optional<size_t> first_row_from(std::string_view content, MetricsFormat format, const std::string& column,
                                     int64_t number) {
  if (format == MetricsFormat::kCsv) return first_csv_row(content, column, number);
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    if (is_at_least(json_number(content.substr(begin, end - begin), column), number)) return begin;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace ddp
