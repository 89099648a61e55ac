#include "launcher/nodes/control/control_link.h"

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

#include "launcher/os/network/tcp_socket.h"

namespace launcher::control {
namespace {

// A launcher that reads its messages never leaves more bytes than this waiting.
constexpr std::size_t kMaxOutgoing = std::size_t{1} << 20;
// Sizes of the kernel's send buffer, and of its part that is not sent yet. They are small because a message waits for
// everything in the buffer. They allow 300 MB/s with a round trip of 0.2 ms.
constexpr int kSendBuffer = 64 << 10;
constexpr int kMaxUnsent = 32 << 10;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// An acknowledgement is sent after so many received bytes, and at intervals. Until then the other end keeps the bytes.
constexpr std::uint64_t kAcknowledgeEvery = std::uint64_t{256} << 10;
// That many retransmissions, after 0.2 and 0.4 s or more, were lost as well.
constexpr int kRetransmissions = 2;

// True when the error is one of the network, not of the other end, which may soon be reachable again.
bool is_of_network(int error) {
  constexpr std::array<int, 7> kErrors = {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EHOSTDOWN, ENONET, ENETRESET};
  return std::find(kErrors.begin(), kErrors.end(), error) != kErrors.end();
}

}  // namespace

ControlLink::ControlLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks)
    : loop_(loop), fd_(std::move(fd)), callbacks_(std::move(callbacks)) {
  if (fd_) watch();
}

ControlLink::~ControlLink() {
  *is_alive_ = false;
  if (fd_) loop_.remove(fd_.get());
}

// TCP_USER_TIMEOUT is not set, because the network interface may go down. The kernel counts it from the first probe
// that it could not send, even if that was in an earlier interruption, and then closes the connection at once.
void ControlLink::watch() {
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsent, sizeof kMaxUnsent);
  loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t events) { on_event(events); });
  waits_to_write_ = false;
}

void ControlLink::send(const Message& message) {
  if (!is_over_) send_frame(to_frame(to_text(message)));
}

void ControlLink::send_frame(const std::string& frame) {
  if (is_over_ || has_overflowed_) return;
  if (outgoing_.size() > kMaxOutgoing) {
    has_overflowed_ = true;
    return;
  }
  outgoing_ += frame;
  flush();
}

void ControlLink::acknowledge() {
  if (!fd_ || has_overflowed_ || received_ == announced_) return;
  announced_ = received_;
  outgoing_ += acknowledgement(received_);
}

void ControlLink::relay_bytes(std::uint32_t round, std::string_view bytes) {
  if (is_over_) return;
  while (!bytes.empty()) {
    if (relayed_.empty() || relayed_.back().round() != round || relayed_.back().is_full()) relayed_.emplace_back(round);
    const std::size_t before = bytes.size();
    relayed_.back().fill(bytes);
    relayed_bytes_ += before - bytes.size();
  }
  was_full_ = was_full_ || !has_room();
}

// Returns false when there is nothing to write now. Carried bytes wait for acknowledgements, so that they do not fill
// the memory.
bool ControlLink::take_next() {
  if (!sent_.is_all_sent()) return true;
  if (sent_.size() == 0) progress_ = std::chrono::steady_clock::now();
  if (!outgoing_.empty()) {
    sent_.add(std::exchange(outgoing_, {}));
  } else if (!relayed_.empty() && sent_.size() < kMaxUnacknowledged) {
    relayed_bytes_ -= relayed_.front().content_size();
    sent_.add(relayed_.front().take_frame());
    relayed_.pop_front();
  }
  return !sent_.is_all_sent();
}

void ControlLink::write_all() {
  while (take_next()) {
    const std::string_view next = sent_.unsent();
    const ssize_t count = ::send(fd_.get(), next.data(), next.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    sent_.sent(static_cast<std::size_t>(count));
  }
}

// Does not report errors: the event loop does, after the sender has returned.
void ControlLink::flush() {
  if (!fd_) return;
  write_all();
  was_full_ = was_full_ || !has_room();
  update_interest();
}

// Leaves on_space_available to the event loop as well, because the sender does not expect the callback during its own
// call.
void ControlLink::update_interest() {
  const bool waits = !sent_.is_all_sent() || (was_full_ && has_room());
  if (waits_to_write_ == waits) return;
  waits_to_write_ = waits;
  loop_.change(fd_.get(), waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void ControlLink::notify_space_available() {
  if (!was_full_ || !has_room()) return;
  const std::shared_ptr<bool> is_alive = is_alive_;
  was_full_ = false;
  callbacks_.on_space_available();
  if (*is_alive) flush();
}

void ControlLink::on_event(std::uint32_t events) {
  const std::shared_ptr<bool> is_alive = is_alive_;
  if ((events & EPOLLOUT) != 0) {
    flush();
    notify_space_available();
    if (!*is_alive || !fd_) return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void ControlLink::receive() {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(fd_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    const int error = count == 0 ? 0 : errno;
    disconnect(is_of_network(error),
               error == 0 ? "it closed the connection" : std::string("the connection broke: ") + std::strerror(error));
    return;
  }
  const std::shared_ptr<bool> is_alive = is_alive_;
  callbacks_.on_sign_of_life();
  if (!*is_alive || !fd_) return;
  incoming_.feed(std::string_view(bytes.data(), static_cast<std::size_t>(count)));
  handle_arrivals();
  if (!*is_alive || !fd_ || received_ - announced_ < kAcknowledgeEvery) return;
  acknowledge();
  flush();
}

void ControlLink::handle_arrivals() {
  const std::shared_ptr<bool> is_alive = is_alive_;
  while (const auto arrival = incoming_.next()) {
    received_ += arrival->size;
    if (!handle(*arrival)) {
      close("it sent something that is not a launcher's message");
      return;
    }
    if (!*is_alive || !fd_) return;
  }
  if (incoming_.is_broken()) close("it sent something that is not a launcher's message");
}

// Returns false when no launcher would send this. May destroy the link.
bool ControlLink::handle(const Arrival& arrival) {
  if (arrival.round) {
    callbacks_.on_relayed(*arrival.round, arrival.bytes);
    return true;
  }
  if (arrival.acknowledged) {
    if (!sent_.acknowledge(*arrival.acknowledged)) return false;
    progress_ = std::chrono::steady_clock::now();
    flush();
    return true;
  }
  const auto message = parse_message(arrival.bytes);
  if (message) callbacks_.on_message(*message);
  return message.has_value();
}

bool ControlLink::is_stalled(std::chrono::steady_clock::time_point now, std::chrono::milliseconds time) const {
  if (!fd_ || sent_.size() == 0 || now - progress_ <= time) return false;
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_retransmits >= kRetransmissions;
}

UniqueFd ControlLink::release() {
  if (fd_) loop_.remove(fd_.get());
  return std::move(fd_);
}

bool ControlLink::resume(UniqueFd fd, std::uint64_t position, std::string_view rest) {
  if (is_over_ || has_overflowed_ || !sent_.rewind(position)) return false;
  release();
  fd_ = std::move(fd);
  incoming_.take_rest();
  progress_ = std::chrono::steady_clock::now();
  watch();
  flush();
  incoming_.feed(rest);
  if (!rest.empty()) handle_arrivals();
  return true;
}

std::string ControlLink::peer() const {
  return peer_of(fd_.get());
}

void ControlLink::abort_session() {
  is_over_ = true;
  release();
}

void ControlLink::disconnect(bool is_network, const std::string& reason) {
  if (callbacks_.on_disconnected) {
    release();
    const auto on_disconnected = callbacks_.on_disconnected;  // it may destroy the link
    const std::shared_ptr<bool> is_alive = is_alive_;
    if (on_disconnected(is_network) || !*is_alive) return;
  }
  close(reason);
}

void ControlLink::close(const std::string& reason) {
  abort_session();
  const auto on_closed = callbacks_.on_closed;  // it may destroy the link
  on_closed(reason);
}

}  // namespace launcher::control
