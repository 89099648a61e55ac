#include "launcher/os/system/line.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/os/system/non_blocking_output.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

// How long to wait for a busy reader. A reader that does not read at all must not block ddprun.
constexpr auto kLineTimeout = std::chrono::seconds(1);
// The length of the beginning and of the end of a longer text. The limit has room for three of the longest paths; a
// variable of 100 kB in a message would otherwise fill the screen.
constexpr std::size_t kBeginning = 12 << 10;
constexpr std::size_t kEnd = 4 << 10;

}  // namespace

std::string message_text(std::string_view text) {
  if (text.size() <= kBeginning + kEnd) return printable(text);
  return printable(beginning(text, kBeginning)) + " ... (" + std::to_string(text.size() - kBeginning - kEnd) +
         " bytes) ... " + printable(text.substr(text.size() - kEnd));
}

void print_line(std::string_view text) {
  print_block("ddprun: " + message_text(text) + "\n");
}

void print_block(std::string_view text) {
  const NonBlockingOutput output(STDERR_FILENO);
  const auto deadline = std::chrono::steady_clock::now() + kLineTimeout;
  while (!text.empty() && output.error() == 0) {
    const ssize_t written = output.write(text);
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd room{output.fd(), POLLOUT, 0};
      if (left.count() <= 0 || (::poll(&room, 1, static_cast<int>(left.count())) <= 0 && errno != EINTR)) return;
    } else if (written < 0 && errno != EINTR) {
      return;
    }
  }
}

}  // namespace launcher
