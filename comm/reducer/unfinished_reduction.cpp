#include "comm/reducer/unfinished_reduction.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "base/joined.h"

namespace ddp::detail {

std::string with_parameter_names(const std::exception& error, const std::vector<std::string>& names) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  const std::string before_indices = "Parameter indices which did not receive grad for rank ";
  const auto found = text.find(before_indices);
  if (found == std::string::npos || text.find("Parameters which did not receive grad") != std::string::npos) {
    return text;
  }
  const auto line_end = std::min(text.find('\n', found), text.size());
  const auto colon = text.find(':', found);
  if (colon >= line_end) return text;
  std::istringstream indices(text.substr(colon + 1, line_end - colon - 1));
  std::string list;
  for (size_t index = 0; indices >> index;) {
    if (index < names.size()) append_item(list, names[index]);
  }
  const auto rank = text.substr(found + before_indices.size(), colon - found - before_indices.size());
  return text.substr(0, found) + "Parameters which did not receive grad for rank " + rank + ": " + list + "\n " +
         text.substr(found, line_end - found);
}

}  // namespace ddp::detail
