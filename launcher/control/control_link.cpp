#include "launcher/control/control_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/network/tcp_socket.h"

namespace launcher::control {
namespace {

// A launcher that takes nothing for so many messages is none.
constexpr std::size_t kMaxOutgoing = std::size_t{1} << 20;
// Of what was given to the kernel so much may be under way, and wait to be sent: messages wait behind that, and a slow
// link is not to lose what its queue does not hold. Enough for 300 MB/s where an answer takes 0.2 ms.
constexpr int kSendBuffer = 64 << 10;
constexpr int kMaxUnsent = 32 << 10;
// Whoever waits for a sign of life notices sooner; a busy link that loses packets may acknowledge nothing for so long.
constexpr std::chrono::milliseconds kLeastUnacknowledged{5'000};
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// An empty buffer is given back above this: there may be thousands.
constexpr std::size_t kKeptBytes = std::size_t{4} << 10;

}  // namespace

ControlLink::ControlLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks)
    : loop_(loop), fd_(std::move(fd)), callbacks_(std::move(callbacks)) {
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsent, sizeof kMaxUnsent);
  loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t events) { on_event(events); });
}

ControlLink::~ControlLink() {
  *is_alive_ = false;
  if (fd_) loop_.remove(fd_.get());
}

void ControlLink::set_patience(std::chrono::milliseconds patience) {
  const auto time = static_cast<unsigned int>(std::max(patience, kLeastUnacknowledged).count());
  if (fd_) ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &time, sizeof time);
}

void ControlLink::send(const Message& message) {
  if (fd_) send_frame(to_frame(to_text(message)));
}

void ControlLink::send_frame(const std::string& frame) {
  if (!fd_ || outgoing_.size() > kMaxOutgoing) return;
  outgoing_ += frame;
  flush();
}

void ControlLink::carry(std::uint32_t round, std::string_view bytes) {
  if (!fd_) return;
  while (!bytes.empty()) {
    if (carried_.empty() || carried_.back().round() != round || carried_.back().is_full()) carried_.emplace_back(round);
    const std::size_t before = bytes.size();
    carried_.back().fill(bytes);
    carried_bytes_ += before - bytes.size();
  }
  was_full_ = was_full_ || !has_room();
}

// False when there is nothing more to write.
bool ControlLink::take_next() {
  if (written_ < writing_.size()) return true;
  writing_.clear();
  written_ = 0;
  if (!outgoing_.empty()) {
    std::swap(writing_, outgoing_);
  } else if (!carried_.empty()) {
    carried_bytes_ -= carried_.front().content_size();
    writing_ = carried_.front().take_frame();
    carried_.pop_front();
  } else if (writing_.capacity() > kKeptBytes) {
    writing_ = {};
  }
  return !writing_.empty();
}

// What breaks here is reported by the loop, to which everybody who sends may come back first.
void ControlLink::flush() {
  if (!fd_) return;
  while (take_next()) {
    const ssize_t sent = ::send(fd_.get(), writing_.data() + written_, writing_.size() - written_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;
    written_ += static_cast<std::size_t>(sent);
  }
  const bool waits = !writing_.empty() || was_full_;  // of which on_room is to be told, though there is room already
  if (waits_for_room_ == waits) return;
  waits_for_room_ = waits;
  loop_.change(fd_.get(), waits_for_room_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void ControlLink::on_event(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    flush();
    if (was_full_ && has_room()) {
      const std::shared_ptr<bool> is_alive = is_alive_;
      was_full_ = false;
      callbacks_.on_room();
      if (!*is_alive || !fd_) return;
      flush();
    }
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void ControlLink::receive() {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(fd_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    close(count == 0 ? "it closed the connection" : std::string("the connection broke: ") + std::strerror(errno));
    return;
  }
  callbacks_.on_sign_of_life();
  incoming_.feed(std::string_view(bytes.data(), static_cast<std::size_t>(count)));
  deliver();
}

void ControlLink::deliver() {
  const std::shared_ptr<bool> is_alive = is_alive_;
  while (const auto arrival = incoming_.next()) {
    if (arrival->round) {
      callbacks_.on_carried(*arrival->round, arrival->bytes);
    } else if (const auto message = parse_message(arrival->bytes)) {
      callbacks_.on_message(*message);
    } else {
      close("what it sends is no message of a launcher");
      return;
    }
    if (!*is_alive || !fd_) return;
  }
  if (incoming_.is_broken()) close("what it sends is no message of a launcher");
}

std::string ControlLink::peer() const {
  return peer_of(fd_.get());
}

void ControlLink::break_off() {
  if (fd_) loop_.remove(fd_.get());
  fd_.reset();
}

void ControlLink::close(const std::string& reason) {
  break_off();
  const auto on_closed = callbacks_.on_closed;  // it may destroy the link
  on_closed(reason);
}

}  // namespace launcher::control
