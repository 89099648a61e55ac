// Writes to an output descriptor of this process without blocking, and without making it non-blocking for programs that
// share it.
#pragma once

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

class NonBlockingOutput {
 public:
  // `fd` must stay open as long as the object exists.
  explicit NonBlockingOutput(int fd) : fd_(fd) {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) {
      error_ = errno;
    } else if (S_ISSOCK(status.st_mode)) {
      kind_ = Kind::kSocket;
    } else if ((::fcntl(fd_, F_GETFL) & O_ACCMODE) == O_RDONLY) {
      kind_ = Kind::kFile;  // a write fails, as it would without ddprun
    } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
      // Opens the file once more: the new open file description can be made non-blocking without changing the one that
      // the shell and others share.
      own_.reset(
          ::open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
      kind_ = own_ ? Kind::kOwnDescription : Kind::kShared;
      if (own_) fd_ = own_.get();
    }
  }

  // Works like write(2): returns the number of written bytes, or -1 with errno, EAGAIN when nothing can be written now.
  ssize_t write(std::string_view bytes) const {
    switch (kind_) {
      case Kind::kSocket:
        return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      case Kind::kShared: {
        // A pipe that is ready accepts this much without blocking.
        pollfd ready{fd_, POLLOUT, 0};
        if (::poll(&ready, 1, 0) == 0) {
          errno = EAGAIN;
          return -1;
        }
        return ::write(fd_, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF));
      }
      case Kind::kFile:
      case Kind::kOwnDescription:
        break;
    }
    return ::write(fd_, bytes.data(), bytes.size());
  }
  // The descriptor to wait for until there is room.
  int fd() const { return fd_; }
  // A file never blocks, and epoll does not accept it.
  bool is_file() const { return kind_ == Kind::kFile; }
  // The errno when the descriptor cannot be used at all, else 0.
  int error() const { return error_; }

 private:
  enum class Kind { kFile, kOwnDescription, kSocket, kShared };

  int fd_;
  UniqueFd own_;  // the same pipe or terminal opened once more, non-blocking
  Kind kind_ = Kind::kFile;
  int error_ = 0;
};

}  // namespace launcher
