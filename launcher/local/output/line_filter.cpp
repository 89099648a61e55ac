#include "launcher/local/output/line_filter.h"

#include <algorithm>

namespace launcher {

void LineFilter::add(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t newline = lines.find('\n');
    const std::string_view line = lines.substr(0, newline == std::string_view::npos ? newline : newline + 1);
    lines.remove_prefix(line.size());
    const bool is_wanted = std::any_of(texts_.begin(), texts_.end(), [&](const std::string& text) {
      return line.find(text) != std::string_view::npos;
    });
    if (!is_wanted) continue;
    file_.write(line);
    if (line.back() != '\n') file_.write("\n");
  }
}

}  // namespace launcher
