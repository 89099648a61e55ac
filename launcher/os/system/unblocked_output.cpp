#include "launcher/os/system/unblocked_output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace launcher {

UnblockedOutput::UnblockedOutput(int fd) : fd_(fd) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    error_ = errno;
  } else if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
  } else if ((::fcntl(fd_, F_GETFL) & O_ACCMODE) == O_RDONLY) {
    kind_ = Kind::kFile;  // writing is to fail, as it would without us
  } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    // A description of our own can be made non-blocking without changing the one that the shell and others share.
    own_.reset(::open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    kind_ = own_ ? Kind::kOwnDescription : Kind::kShared;
    if (own_) fd_ = own_.get();
  }
}

ssize_t UnblockedOutput::write(std::string_view bytes) const {
  switch (kind_) {
    case Kind::kSocket:
      return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case Kind::kShared: {
      // A pipe that is ready takes this much without blocking.
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

}  // namespace launcher
