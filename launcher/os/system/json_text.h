// JSON on one line, whatever bytes are in its texts: what is not UTF-8 is replaced.
#pragma once

#include <string>

namespace launcher {

template <typename Json>
std::string json_text(const Json& value, bool ensure_ascii = false) {
  return value.dump(-1, ' ', ensure_ascii, Json::error_handler_t::replace);
}

}  // namespace launcher
