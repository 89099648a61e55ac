#include "launcher/local/output/input_copies.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace launcher {
namespace {

constexpr std::size_t kPieceBytes = 64 << 10;

}  // namespace

InputCopies::InputCopies(EventLoop& loop, int source) : loop_(loop), source_(source) {
  struct stat status {};
  if (::fstat(source_, &status) != 0) {
    at_end_ = true;
  } else if (S_ISFIFO(status.st_mode)) {
    // Another process that shares the pipe may read the data first. Then our read must not block.
    own_.reset(::open(("/proc/self/fd/" + std::to_string(source_)).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  if (!own_ && !at_end_) own_.reset(::fcntl(source_, F_DUPFD_CLOEXEC, 0));
  if (own_) source_ = own_.get();
  // epoll does not accept regular files and some devices. These are read whenever there is room.
  is_watchable_ = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
}

InputCopies::~InputCopies() {
  close_readers();
}

UniqueFd InputCopies::add_reader() {
  Pipe pipe = make_pipe();
  ::fcntl(pipe.writer.get(), F_SETFL, O_NONBLOCK);
  readers_.push_back({.pipe = std::move(pipe.writer), .written = piece_.size()});
  return std::move(pipe.reader);
}

void InputCopies::begin() {
  if (at_end_) {
    close_readers();
  } else {
    watch_source(true);
  }
}

void InputCopies::close_readers() {
  watch_source(false);
  for (Reader& reader : readers_) stop_writing(reader);
  readers_.clear();
}

void InputCopies::watch_source(bool on) {
  if (on == source_watched_) return;
  source_watched_ = on;
  if (is_watchable_ && on) loop_.add(source_, EPOLLIN, [this](std::uint32_t) { read_source(); });
  if (is_watchable_ && !on) loop_.remove(source_);
  if (!is_watchable_ && on) read_timer_.start_in({}, [this] { read_source(); });
  if (!is_watchable_ && !on) read_timer_.cancel();
}

void InputCopies::watch_reader(Reader& reader, bool on) {
  if (on == reader.watched) return;
  reader.watched = on;
  const int fd = reader.pipe.get();
  if (!on) {
    loop_.remove(fd);
    return;
  }
  loop_.add(fd, EPOLLOUT, [this, fd](std::uint32_t) {
    for (Reader& other : readers_) {
      if (other.pipe.get() == fd) write_to(other);
    }
    advance();
  });
}

void InputCopies::read_source() {
  piece_.resize(kPieceBytes);
  ssize_t count = 0;
  do {
    count = ::read(source_, piece_.data(), piece_.size());
  } while (count < 0 && errno == EINTR);
  piece_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  if (count < 0 && errno == EAGAIN) return;
  watch_source(false);
  if (count <= 0) {
    at_end_ = true;
    close_readers();
    return;
  }
  for (Reader& reader : readers_) {
    reader.written = 0;
    write_to(reader);
  }
  advance();
}

void InputCopies::write_to(Reader& reader) {
  const std::string_view rest = std::string_view(piece_).substr(reader.written);
  if (!reader.pipe || rest.empty()) return;
  const ssize_t count = ::write(reader.pipe.get(), rest.data(), rest.size());
  if (count < 0 && errno != EAGAIN && errno != EINTR) {
    stop_writing(reader);  // it does not read any more
    return;
  }
  if (count > 0) reader.written += static_cast<std::size_t>(count);
  watch_reader(reader, reader.written < piece_.size());
}

void InputCopies::stop_writing(Reader& reader) {
  watch_reader(reader, false);
  reader.pipe.reset();
}

void InputCopies::advance() {
  const bool is_taken = std::all_of(readers_.begin(), readers_.end(), [this](const Reader& reader) {
    return !reader.pipe || reader.written == piece_.size();
  });
  const bool has_readers = std::any_of(readers_.begin(), readers_.end(),
                                       [](const Reader& reader) { return static_cast<bool>(reader.pipe); });
  if (is_taken && has_readers && !at_end_) watch_source(true);
}

}  // namespace launcher
