// How large the terminal is that a program writes to.
#pragma once

#include <sys/ioctl.h>

#include <cstddef>

namespace ddp::detail {

/// 0 where there is no terminal, or where it does not say.
struct TerminalSize {
  std::size_t columns = 0;
  std::size_t rows = 0;
};

/// Of the terminal that a descriptor refers to.
inline TerminalSize terminal_size(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? TerminalSize{size.ws_col, size.ws_row} : TerminalSize{};
}

}  // namespace ddp::detail
