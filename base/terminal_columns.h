// How large the terminal is that a program writes to.
#pragma once

#include <sys/ioctl.h>

#include <cstddef>

namespace ddp::detail {

/// Of the terminal behind a descriptor; 0 where there is none, or where it does not say.
inline std::size_t terminal_columns(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// The same of its rows.
inline std::size_t terminal_rows(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

}  // namespace ddp::detail
