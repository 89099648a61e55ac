#include "launcher/output/stream_writer.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace launcher {

StreamWriter::StreamWriter(EventLoop& loop, int fd, std::function<void()> on_room)
    : loop_(loop), fd_(fd), on_room_(std::move(on_room)) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    error_ = errno;
  } else if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
  } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    // A description of our own can be made non-blocking without changing the one that the shell and others share.
    own_.reset(::open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    kind_ = own_ ? Kind::kOwnDescription : Kind::kShared;
    if (own_) fd_ = own_.get();
  }
}

StreamWriter::~StreamWriter() {
  watch(false);
}

std::string& StreamWriter::lines_of(int source) {
  if (written_ > 0 && (written_ == buffer_.size() || written_ >= kFull)) {
    buffer_.erase(0, written_);
    written_ = 0;
  }
  if (!buffer_.empty()) last_byte_ = buffer_.back();
  if (source != last_source_ && last_byte_ != '\n') buffer_.push_back('\n');
  last_source_ = source;
  return buffer_;
}

ssize_t StreamWriter::write_some(std::string_view bytes) const {
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

void StreamWriter::flush() {
  if (error_ != 0) {
    if (!buffer_.empty()) last_byte_ = buffer_.back();
    buffer_.clear();
    written_ = 0;
    return;
  }
  while (waiting() > 0) {
    const ssize_t count = write_some(std::string_view(buffer_).substr(written_));
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      fail(errno);
      return;
    }
  }
  watch(waiting() > 0);
  if (waiting() == 0 && !buffer_.empty()) {
    last_byte_ = buffer_.back();
    buffer_.clear();
    written_ = 0;
  }
}

void StreamWriter::fail(int error) {
  error_ = error;
  buffer_.clear();
  written_ = 0;
  watch(false);
  on_room_();
}

void StreamWriter::watch(bool on) {
  if (on == watched_ || kind_ == Kind::kFile) return;
  watched_ = on;
  if (!on) {
    loop_.remove(fd_);
    return;
  }
  loop_.add(fd_, EPOLLOUT, [this](std::uint32_t) {
    flush();
    if (!is_full()) on_room_();
  });
}

}  // namespace launcher
