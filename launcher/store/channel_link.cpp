#include "launcher/store/channel_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace launcher::store {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// An empty buffer of a connection that was busy is given back above this.
constexpr std::size_t kKeptBytes = std::size_t{64} << 10;

}  // namespace

ChannelLink::ChannelLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks)
    : loop_(loop), fd_(std::move(fd)), callbacks_(std::move(callbacks)) {
  loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t events) { on_event(events); });
}

ChannelLink::~ChannelLink() {
  *is_alive_ = false;
  if (fd_) loop_.remove(fd_.get());
}

void ChannelLink::send(FrameKind kind, Channel channel, std::string_view bytes, std::uint32_t number) {
  append_frame(outgoing_, kind, channel, bytes, number);
  if (!has_room()) had_no_room_ = true;
}

// What breaks here is reported by the loop, to which everybody who sends may come back first.
void ChannelLink::flush() {
  if (!fd_) return;
  while (sent_ < outgoing_.size()) {
    const ssize_t count = ::send(fd_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    sent_ += static_cast<std::size_t>(count);
  }
  const bool is_empty = sent_ == outgoing_.size();
  if (is_empty || sent_ > kKeptBytes) {
    outgoing_.erase(0, std::exchange(sent_, 0));
    if (outgoing_.capacity() > kKeptBytes && is_empty) outgoing_ = {};
  }
  if (is_watched_for_room_ == is_empty) {
    is_watched_for_room_ = !is_empty;
    loop_.change(fd_.get(), is_empty ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }
}

void ChannelLink::on_event(std::uint32_t events) {
  const std::shared_ptr<bool> is_alive = is_alive_;
  if ((events & EPOLLOUT) != 0) {
    flush();
    if (had_no_room_ && has_room()) {
      had_no_room_ = false;
      callbacks_.on_room();
      if (!*is_alive || !fd_) return;
      flush();
    }
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void ChannelLink::receive() {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(fd_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    close();
    return;
  }
  deliver(std::string_view(bytes.data(), static_cast<std::size_t>(count)));
}

void ChannelLink::deliver(std::string_view bytes) {
  const std::shared_ptr<bool> is_alive = is_alive_;
  incoming_.feed(bytes);
  while (auto frame = incoming_.next()) {
    callbacks_.on_frame(std::move(*frame));
    if (!*is_alive) return;
  }
  if (incoming_.is_broken()) {
    close();
    return;
  }
  callbacks_.on_delivered();
  if (*is_alive) flush();
}

void ChannelLink::close() {
  loop_.remove(fd_.get());
  fd_.reset();
  const auto on_closed = callbacks_.on_closed;  // it may destroy the link
  on_closed();
}

}  // namespace launcher::store
