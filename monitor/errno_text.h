// Describes why the last system call failed.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace ddp::detail {

inline std::string errno_text() {
  return std::generic_category().message(errno);
}

}  // namespace ddp::detail
