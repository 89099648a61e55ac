// One line of progress on standard error: rewritten in place on a terminal, else a plain line now and then.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace examples {

class Progress {
 public:
  void show(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (is_terminal_) {
      std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
    } else if (now - last_ >= kBetweenLines) {
      std::fprintf(stderr, "%s\n", text.c_str());
      last_ = now;
    }
  }

  /// Before anything else is printed.
  void clear() {
    if (is_terminal_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  static constexpr std::chrono::seconds kBetweenLines{5};
  const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace examples
