// The size of the terminal that a program writes to.
#pragma once

#include <sys/ioctl.h>

#include <cstddef>

namespace ddp::detail {

/// Zero if there is no terminal, or if the terminal does not report its size.
struct TerminalSize {
  std::size_t columns = 0;
  std::size_t rows = 0;
};

/// The size of the terminal that the descriptor refers to.
inline TerminalSize terminal_size(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? TerminalSize{size.ws_col, size.ws_row} : TerminalSize{};
}

}  // namespace ddp::detail
