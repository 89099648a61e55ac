// Formats JSON on one line. Bytes in its texts that are not UTF-8 are replaced.
#pragma once

#include <string>

namespace launcher {

template <typename Json>
std::string json_text(const Json& value, bool ensure_ascii = false) {
  return value.dump(-1, ' ', ensure_ascii, Json::error_handler_t::replace);
}

}  // namespace launcher
