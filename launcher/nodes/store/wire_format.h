// The store protocol's building blocks, for both ends: little-endian integers, and strings after their length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/os/system/little_endian.h"

namespace launcher::store {

inline void append_text(std::string& out, std::string_view text) {
  append_integer(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

}  // namespace launcher::store
