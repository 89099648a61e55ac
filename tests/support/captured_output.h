// What this process writes to standard output or standard error.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace ddp::test {

/// Catches one of the process's two streams while it lives, children's words included. One at a time.
class CapturedOutput {
 public:
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  /// All that has been written so far.
  std::string text() const {
    std::fflush(stream_);
    std::string all;
    std::array<char, 4096> part{};
    while (true) {
      const ssize_t got = ::pread(file_, part.data(), part.size(), static_cast<off_t>(all.size()));
      if (got <= 0) return all;
      all.append(part.data(), static_cast<size_t>(got));
    }
  }

 protected:
  explicit CapturedOutput(FILE* stream)
      : stream_(stream), file_(::memfd_create("captured", MFD_CLOEXEC)), before_(::dup(::fileno(stream))) {
    std::fflush(stream_);
    if (file_ < 0 || before_ < 0 || ::dup2(file_, ::fileno(stream_)) < 0) {
      throw std::runtime_error("the stream cannot be caught");
    }
  }
  ~CapturedOutput() {
    std::fflush(stream_);
    ::dup2(before_, ::fileno(stream_));
    ::close(before_);
    ::close(file_);
  }

 private:
  FILE* stream_;
  int file_;
  int before_;
};

struct CapturedStderr : CapturedOutput {
  CapturedStderr() : CapturedOutput(stderr) {}
};

/// Catch2 reports to standard output: judge when this is gone.
struct CapturedStdout : CapturedOutput {
  CapturedStdout() : CapturedOutput(stdout) {}
};

}  // namespace ddp::test
