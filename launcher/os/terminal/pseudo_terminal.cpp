#include "launcher/os/terminal/pseudo_terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <algorithm>
#include <array>

namespace launcher {
namespace {

int open_terminal_of(int master) {
  // Also right where /dev/pts is another instance's; kernels before 4.13 do not have it.
  const int fd = ::ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) return fd;
  std::array<char, 64> name{};
  if (::ptsname_r(master, name.data(), name.size()) != 0) return -1;
  return ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

std::optional<PseudoTerminal> open_pseudo_terminal(int like, std::size_t prefix_columns) {
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

void copy_window_size(int from_terminal, int to_terminal, std::size_t prefix_columns) {
  winsize size{};
  if (::ioctl(from_terminal, TIOCGWINSZ, &size) != 0) return;
  if (size.ws_col > 0)
    size.ws_col -= static_cast<unsigned short>(std::min<std::size_t>(prefix_columns, size.ws_col - 1U));
  ::ioctl(to_terminal, TIOCSWINSZ, &size);
}

}  // namespace launcher
