#include "launcher/control/control_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace launcher::control {
namespace {

// A launcher that takes nothing for so many messages is none.
constexpr std::size_t kMaxOutgoing = std::size_t{1} << 20;

}  // namespace

ControlLink::ControlLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks)
    : loop_(loop), fd_(std::move(fd)), callbacks_(std::move(callbacks)) {
  loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t events) { on_event(events); });
}

ControlLink::~ControlLink() {
  *is_alive_ = false;
  if (fd_) loop_.remove(fd_.get());
}

void ControlLink::set_patience(std::chrono::milliseconds patience) {
  const auto time = static_cast<unsigned int>(patience.count());
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

// What breaks here is reported by the loop, to which everybody who sends may come back first.
void ControlLink::flush() {
  while (!outgoing_.empty()) {
    const ssize_t sent = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
  if (waits_for_room_ == !outgoing_.empty()) return;
  waits_for_room_ = !outgoing_.empty();
  loop_.change(fd_.get(), waits_for_room_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void ControlLink::on_event(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void ControlLink::receive() {
  std::array<char, 16384> bytes;
  const ssize_t count = ::read(fd_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    close(count == 0 ? "it closed the connection" : std::string("the connection broke: ") + std::strerror(errno));
    return;
  }
  incoming_.feed(std::string_view(bytes.data(), static_cast<std::size_t>(count)));
  deliver();
}

void ControlLink::deliver() {
  const std::shared_ptr<bool> is_alive = is_alive_;
  while (const auto text = incoming_.next()) {
    const auto message = parse_message(*text);
    if (!message) {
      close("what it sends is no message of a launcher");
      return;
    }
    callbacks_.on_message(*message);
    if (!*is_alive || !fd_) return;
  }
  if (incoming_.is_broken()) close("what it sends is no message of a launcher");
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
