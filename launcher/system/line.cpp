#include "launcher/system/line.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace launcher {

void print_line(std::string_view text) {
  std::string line = "ddprun: ";
  line.append(text);
  line.push_back('\n');
  print_block(line);
}

void print_block(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      // Somebody made the terminal or pipe non-blocking. Wait a little, but a reader that stopped must not stop us.
      pollfd poll_fd{STDERR_FILENO, POLLOUT, 0};
      if (::poll(&poll_fd, 1, 1000) <= 0) return;
    } else if (written < 0 && errno != EINTR) {
      return;
    }
  }
}

}  // namespace launcher
