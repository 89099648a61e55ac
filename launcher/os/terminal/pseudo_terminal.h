// A pseudo-terminal for one stream of a rank, so that programs use line buffering and show colours and progress bars as
// at ddprun's own terminal.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct PseudoTerminal {
  UniqueFd master;    // ddprun reads here; read() returns EIO when the last writer has closed its end
  UniqueFd terminal;  // the rank writes here
};

inline int open_terminal_of(int master) {
  // Works also if /dev/pts belongs to another instance; kernels before 4.13 do not have it.
  const int fd = ::ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) return fd;
  std::array<char, 64> name{};
  if (::ptsname_r(master, name.data(), name.size()) != 0) return -1;
  return ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
}

inline void copy_window_size(int from_terminal, int to_terminal, std::size_t prefix_columns) {
  winsize size{};
  if (::ioctl(from_terminal, TIOCGWINSZ, &size) != 0) return;
  if (size.ws_col > 0)
    size.ws_col -= static_cast<unsigned short>(std::min<std::size_t>(prefix_columns, size.ws_col - 1U));
  ::ioctl(to_terminal, TIOCSWINSZ, &size);
}

// Opens one in raw mode: bytes are passed on unchanged, without translated newlines or echo. Its window is as large as
// that of the terminal `like`, less `prefix_columns` for the prefix of each line. Nothing if the system has no
// pseudo-terminals, or none left.
inline std::optional<PseudoTerminal> open_pseudo_terminal(int like, std::size_t prefix_columns) {
  PseudoTerminal pair;
  pair.master.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pair.master || ::unlockpt(pair.master.get()) != 0) return std::nullopt;
  pair.terminal.reset(open_terminal_of(pair.master.get()));
  termios settings{};
  if (!pair.terminal || ::tcgetattr(pair.terminal.get(), &settings) != 0) return std::nullopt;
  ::cfmakeraw(&settings);
  if (::tcsetattr(pair.terminal.get(), TCSANOW, &settings) != 0) return std::nullopt;
  copy_window_size(like, pair.master.get(), prefix_columns);
  return pair;
}

}  // namespace launcher
