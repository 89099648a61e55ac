// Manifests as someone who knows the format could forge them.
#pragma once

#include <cstdio>
#include <string>

#include "base/crc32c.h"

namespace ddp::test {

/// The same text with a right checksum, if it has one at all.
inline std::string with_checksum(std::string text) {
  const std::string marker = "  \"crc32c\": \"";
  const auto found = text.rfind(marker);
  if (found == std::string::npos || text.size() - found < marker.size() + 8) return text;
  const auto at = found + marker.size();
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", crc32c(text.data(), at));
  return text.replace(at, 8, digits);
}

}  // namespace ddp::test
