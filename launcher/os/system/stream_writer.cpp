#include "launcher/os/system/stream_writer.h"

#include <sys/epoll.h>
#include <sys/stat.h>

#include <cerrno>

namespace launcher {

StreamWriter::StreamWriter(EventLoop& loop, int fd, std::function<void()> on_space_available)
    : loop_(loop), output_(fd), on_space_available_(std::move(on_space_available)), error_(output_.error()) {}

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

void StreamWriter::flush() {
  if (error_ != 0) {
    clear();
    return;
  }
  while (waiting() > 0) {
    const ssize_t count = output_.write(std::string_view(buffer_).substr(written_));
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
      if (count > 0) last_taken_ = buffer_[written_ - 1];
      last_progress_ = EventLoop::Clock::now();
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      fail(errno);
      return;
    }
  }
  watch(waiting() > 0);
  if (waiting() == 0) clear();
}

std::size_t StreamWriter::drop_all() {
  const std::size_t dropped = waiting();
  clear();
  watch(false);
  if (dropped > 0) {  // the reader may have received a part of a line whose rest was dropped
    last_byte_ = last_taken_;
    last_source_ = -1;
  }
  return dropped;
}

void StreamWriter::clear() {
  if (!buffer_.empty()) last_byte_ = buffer_.back();
  buffer_.clear();
  written_ = 0;
}

void StreamWriter::fail(int error) {
  error_ = error;
  buffer_.clear();
  written_ = 0;
  watch(false);
  on_space_available_();
}

void StreamWriter::watch(bool on) {
  if (on == watched_ || output_.is_file()) return;
  watched_ = on;
  if (!on) {
    loop_.remove(output_.fd());
    return;
  }
  loop_.add(output_.fd(), EPOLLOUT, [this](std::uint32_t) {
    flush();
    if (!is_full()) on_space_available_();
  });
}

bool are_same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace launcher
