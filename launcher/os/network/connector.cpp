#include "launcher/os/network/connector.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/os/network/tcp_socket.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// A pause is 1/kPauseDivisor of the time waited so far, within limits. After a long wait it is 1/kLatePauseDivisor of
// that time, within other limits. So a pause lengthens the wait by that part at most.
constexpr int kPauseDivisor = 16;
constexpr auto kMinPause = 2ms;
constexpr int kLatePauseDivisor = 512;
constexpr auto kMaxPause = 200ms;
// Each resolution of a name starts a process, so these pauses are longer.
constexpr int kUnresolvedPauses = 4;
constexpr auto kMinUnresolvedPause = 50ms;
constexpr auto kMaxUnresolvedPause = 2s;
// A name may get another address, for example when a pod was moved.
constexpr auto kResolveInterval = 10s;
// The kernel repeats a connection request for two minutes at growing intervals, so each attempt has a shorter limit.
constexpr auto kAttempt = 3s;
constexpr auto kAttemptOfSeveral = 500ms;

EventLoop::Clock::duration part_of(EventLoop::Clock::duration waited, int parts, EventLoop::Clock::duration least,
                                   EventLoop::Clock::duration most) {
  return std::clamp(waited / parts, least, most);
}

}  // namespace

Connector::Connector(EventLoop& loop, std::string host, std::uint16_t port, std::function<void(UniqueFd)> on_connected,
                     std::chrono::milliseconds early_pause)
    : loop_(loop),
      host_(std::move(host)),
      port_(port),
      on_connected_(std::move(on_connected)),
      early_pause_(std::clamp<std::chrono::milliseconds>(early_pause, kMinPause, kMaxPause)) {
  addresses_ = numeric_addresses(host_, port_);
  is_numeric_ = !addresses_.empty();
  // The constructor does not connect itself, since its caller may not be ready for the callback.
  pause(0ms);
}

Connector::~Connector() {
  drop_attempt();
}

void Connector::drop_attempt() {
  if (fd_) loop_.remove(fd_.get());
  fd_.reset();
}

void Connector::pause(Clock::duration time) {
  timer_.start_in(time, [this] { begin(); });
}

Connector::Clock::duration Connector::pause_after(Clock::duration waited, Clock::duration early_pause) {
  return std::max(part_of(waited, kPauseDivisor, kMinPause, early_pause),
                  part_of(waited, kLatePauseDivisor, kMinPause, kMaxPause));
}

Connector::Clock::duration Connector::pause_after_refusal() const {
  return pause_after(Clock::now() - begun_, early_pause_);
}

void Connector::retry(std::string problem) {
  problem_ = std::move(problem);
  drop_attempt();
  pause(pause_after_refusal());
}

void Connector::begin() {
  next_address_ = 0;
  if (is_numeric_ || (!addresses_.empty() && Clock::now() < resolved_ + kResolveInterval)) {
    connect_next();
  } else {
    look_up();
  }
}

void Connector::look_up() {
  lookup_ = std::make_unique<AddressLookup>(loop_, host_, port_, [this](std::vector<SocketAddress> addresses) {
    resolved_ = Clock::now();
    if (!addresses.empty()) addresses_ = std::move(addresses);  // else the earlier addresses are kept
    if (!addresses_.empty()) {
      connect_next();
      return;
    }
    problem_ = "the name " + host_ + " cannot be resolved";
    pause(part_of(Clock::now() - begun_, kUnresolvedPauses, kMinUnresolvedPause, kMaxUnresolvedPause));
  });
}

void Connector::connect_next() {
  const SocketAddress& address = addresses_[next_address_++];
  fd_.reset(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) {  // for example on a machine without IPv6
    on_failed(errno);
    return;
  }
  const auto* peer = reinterpret_cast<const sockaddr*>(&address.storage);
  // An error that the kernel reports at once, such as a missing route, is handled as a failed attempt.
  if (::connect(fd_.get(), peer, address.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    const int error = errno;
    fd_.reset();
    on_failed(error);
    return;
  }
  loop_.add(fd_.get(), EPOLLOUT, [this](std::uint32_t) { on_outcome(); });
  const bool is_last = next_address_ == addresses_.size();
  timer_.start_in(is_last ? kAttempt : kAttemptOfSeveral, [this] {
    drop_attempt();
    on_failed(ETIMEDOUT);
  });
}

void Connector::on_outcome() {
  const int error = pending_error(fd_.get());
  timer_.cancel();
  loop_.remove(fd_.get());
  UniqueFd fd = std::move(fd_);
  // If no process listens on a port that the kernel also assigns, a socket can connect to itself, and would keep the
  // port.
  if (error != 0 || is_connected_to_itself(fd.get())) {
    fd.reset();
    on_failed(error != 0 ? error : ECONNREFUSED);
    return;
  }
  set_connection_options(fd.get());
  problem_.clear();
  on_connected_(std::move(fd));
}

void Connector::on_failed(int error) {
  if (next_address_ < addresses_.size()) {
    connect_next();
    return;
  }
  problem_ = std::strerror(error);
  was_refused_ = error == ECONNREFUSED;
  pause(pause_after_refusal());
}

}  // namespace launcher
