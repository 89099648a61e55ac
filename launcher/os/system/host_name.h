// This machine's name, for messages.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace launcher {

inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace launcher
