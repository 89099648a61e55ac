// What this process writes to standard error, for tests of warnings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace ddp::test {

/// Catches the process's standard error while it lives, children's included. One at a time.
class CapturedStderr {
 public:
  CapturedStderr() : file_(::memfd_create("stderr", MFD_CLOEXEC)), before_(::dup(STDERR_FILENO)) {
    std::fflush(stderr);
    if (file_ < 0 || before_ < 0 || ::dup2(file_, STDERR_FILENO) < 0) {
      throw std::runtime_error("standard error cannot be caught");
    }
  }
  ~CapturedStderr() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(file_);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;

  /// All that has been written so far.
  std::string text() const {
    std::fflush(stderr);
    std::string all;
    std::array<char, 4096> part{};
    while (true) {
      const ssize_t got = ::pread(file_, part.data(), part.size(), static_cast<off_t>(all.size()));
      if (got <= 0) return all;
      all.append(part.data(), static_cast<size_t>(got));
    }
  }

 private:
  int file_;
  int before_;
};

}  // namespace ddp::test
