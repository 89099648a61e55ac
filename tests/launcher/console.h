// A terminal of a test: what is written to it is read at its other end, byte for byte.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

class Console {
 public:
  Console(unsigned short height, unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (!master_ || ::grantpt(master_.get()) != 0 || ::unlockpt(master_.get()) != 0) {
      throw std::runtime_error("there are no pseudo-terminals");
    }
    terminal_.reset(::open(::ptsname(master_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    termios settings{};
    if (::tcgetattr(terminal_.get(), &settings) != 0) throw std::runtime_error("the terminal cannot be opened");
    ::cfmakeraw(&settings);
    ::tcsetattr(terminal_.get(), TCSANOW, &settings);
    ::fcntl(master_.get(), F_SETFL, O_NONBLOCK);
    resize(height, columns);
  }

  int terminal() const { return terminal_.get(); }
  void resize(unsigned short height, unsigned short columns) const {
    const winsize size{.ws_row = height, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(terminal_.get(), TIOCSWINSZ, &size);
  }
  // As a person at the keyboard.
  void type(const std::string& text) const {
    if (::write(master_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("cannot type");
    }
  }
  void hang_up() { master_.reset(); }
  // What has come since the last call, at most so much.
  std::string take(std::size_t most = 1 << 20) const {
    std::string bytes;
    std::string part(4096, '\0');
    while (bytes.size() < most) {
      const ssize_t count = ::read(master_.get(), part.data(), std::min(part.size(), most - bytes.size()));
      if (count <= 0) break;
      bytes.append(part, 0, static_cast<std::size_t>(count));
    }
    return bytes;
  }

 private:
  UniqueFd master_;
  UniqueFd terminal_;
};

// One of this process's standard descriptors is another one while it lives. Catch2 reports to standard output: judge
// when this is gone.
class Redirected {
 public:
  Redirected(int number, int target) : number_(number), before_(::fcntl(number, F_DUPFD_CLOEXEC, 3)) {
    if (before_ < 0 || ::dup2(target, number) < 0) throw std::runtime_error("cannot redirect a standard descriptor");
  }
  ~Redirected() {
    ::dup2(before_, number_);
    ::close(before_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int number_;
  int before_;
};

}  // namespace launcher
