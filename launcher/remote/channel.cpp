#include "launcher/remote/channel.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace launcher::remote {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kCompactAt = std::size_t{1} << 20;

}  // namespace

Channel::Channel(EventLoop& loop, UniqueFd reader, UniqueFd writer, Callbacks callbacks)
    : loop_(loop), reader_(std::move(reader)), writer_(std::move(writer)), callbacks_(std::move(callbacks)) {
  loop_.add(reader_.get(), EPOLLIN, [this](std::uint32_t) { read(); });
}

Channel::~Channel() {
  stop_reading();
  watch_writer(false);
}

void Channel::stop_reading() {
  if (!reader_) return;
  loop_.remove(reader_.get());
  reader_.reset();
}

void Channel::read() {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(reader_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  last_received_ = EventLoop::Clock::now();
  if (count > 0) take({bytes.data(), static_cast<std::size_t>(count)});
  if (count > 0 && !frames_.is_broken()) return;
  stop_reading();
  callbacks_.on_end();
}

void Channel::take(std::string_view bytes) {
  if (callbacks_.on_preamble) {
    preamble_ += bytes;
    const std::size_t end = callbacks_.on_preamble(preamble_);
    if (end == std::string::npos) return;
    callbacks_.on_preamble = nullptr;
    frames_.feed(std::string_view(preamble_).substr(end));
    preamble_.clear();
  } else {
    frames_.feed(bytes);
  }
  while (auto frame = frames_.next()) callbacks_.on_frame(std::move(*frame));
}

void Channel::send_bytes(std::string_view bytes) {
  if (!writer_ || is_finishing_) return;
  waiting_ += bytes;
  write();
}

void Channel::finish_sending() {
  is_finishing_ = true;
  write();
}

void Channel::write() {
  if (!writer_) return;
  while (written_ < waiting_.size()) {
    const ssize_t count = ::write(writer_.get(), waiting_.data() + written_, waiting_.size() - written_);
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      if (written_ >= kCompactAt) waiting_.erase(0, std::exchange(written_, 0));
      watch_writer(true);
      return;
    } else if (errno != EINTR) {  // there is no reader any more; the other direction will end, too
      break;
    }
  }
  const bool is_broken = written_ < waiting_.size();
  waiting_.clear();
  written_ = 0;
  watch_writer(false);
  if (is_broken || is_finishing_) writer_.reset();
}

void Channel::watch_writer(bool on) {
  if (on == is_writer_watched_ || !writer_) return;
  is_writer_watched_ = on;
  if (on) {
    loop_.add(writer_.get(), EPOLLOUT, [this](std::uint32_t) { write(); });
  } else {
    loop_.remove(writer_.get());
  }
}

}  // namespace launcher::remote
