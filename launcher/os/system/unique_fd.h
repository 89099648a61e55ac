// Descriptors that their owner closes, and pipes of them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "launcher/os/system/launch_error.h"

namespace launcher {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// A pipe whose ends are closed on exec.
struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

// `flags` are flags of pipe2, to which O_CLOEXEC is added. Throws LaunchError when no descriptors are left.
inline Pipe make_pipe(int flags = 0) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | flags) != 0) {
    throw LaunchError(std::string("cannot create a pipe: ") + std::strerror(errno) +
                      (errno == EMFILE ? " (limit on open files: ulimit -n)" : ""));
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace launcher
