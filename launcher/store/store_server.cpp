#include "launcher/store/store_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>

#include "launcher/store/wire_format.h"
#include "launcher/system/launch_error.h"

namespace launcher::store {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
// Replies waiting for a slow reader before its requests are no longer read.
constexpr std::size_t kMaxPendingReplies = std::size_t{1} << 20;
// From this size a value is shared with the reply instead of copied.
constexpr std::size_t kShareFrom = 128;
// Refused connections are named one by one up to here: strangers must not flood the job's output.
constexpr std::size_t kMaxNamedRefusals = 8;
// Descriptors that connections leave for what ends the job: looking at processes, reading error files.
constexpr int kReservedDescriptors = 16;

int descriptor_limit() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < std::numeric_limits<int>::max();
  return is_known ? static_cast<int>(limit.rlim_cur) : std::numeric_limits<int>::max();
}

std::string peer_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a connection";
  }
  return std::string(host.data()) + " port " + port.data();
}

// A listening socket for `family`, or an empty one with errno set.
UniqueFd listen_on(int family, const ServerOptions& options) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int bound = -1;
  if (family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(options.port);
    bound = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(options.loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    address.sin_port = htons(options.port);
    bound = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  if (bound != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

std::uint16_t free_port() {
  const UniqueFd listener = listen_on(AF_INET, {});
  if (!listener) throw LaunchError(std::string("cannot find a free port: ") + std::strerror(errno));
  return port_of(listener.get());
}

// Replies on their way: small ones are packed together, large values are shared with the store.
struct StoreServer::Connection {
  struct Piece {
    Value shared;  // null: `own` holds the bytes
    std::string own;
    std::string_view bytes() const { return shared ? std::string_view(*shared) : std::string_view(own); }
  };

  UniqueFd fd;
  RequestParser parser;
  std::deque<Piece> pending;
  std::size_t sent_of_first = 0;
  std::size_t pending_bytes = 0;
  std::uint32_t interest = EPOLLIN;
  bool known = false;             // has sent a valid request
  bool requests_waiting = false;  // received but not answered: the replies before them are not taken
  bool broken = false;
};

StoreServer::StoreServer(EventLoop& loop, Messages& messages, const ServerOptions& options)
    : loop_(loop), messages_(messages), descriptor_limit_(descriptor_limit()) {
  if (!options.loopback_only) listener_ = listen_on(AF_INET6, options);
  // No IPv6 on this machine, or only loopback wanted. A taken port is an error for either family.
  if (!listener_ && (options.loopback_only || errno != EADDRINUSE)) listener_ = listen_on(AF_INET, options);
  if (!listener_) {
    const int error = errno;
    if (error == EADDRINUSE) {
      throw LaunchError("port " + std::to_string(options.port) +
                        " is in use by another program; choose another one with --master_port");
    }
    throw LaunchError("cannot listen on port " + std::to_string(options.port) + ": " + std::strerror(error) +
                      (error == EACCES ? " (ports below 1024 belong to root)" : ""));
  }
  port_ = port_of(listener_.get());
  loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
}

StoreServer::~StoreServer() {
  if (pause_) loop_.cancel(*pause_);
  loop_.remove(listener_.get());
  for (const auto& [id, connection] : connections_) loop_.remove(connection->fd.get());
}

void StoreServer::accept_all() {
  // A bounded number in a row: a flood of connections must not keep the loop from the ranks.
  for (int i = 0; i < 64; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) pause_accepting();
      return;
    }
    // The kernel gives out the lowest free number, so a high one means that few are left: so many connections and no
    // more.
    if (fd.get() >= descriptor_limit_ - kReservedDescriptors) capacity_ = std::min(capacity_, connections_.size());
    if (connections_.size() >= capacity_ && !drop_oldest_stranger()) {
      fd.reset();
      pause_accepting();
      return;
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    const ConnectionId id = next_id_++;
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    loop_.add(connection->fd.get(), EPOLLIN, [this, id](std::uint32_t events) { on_event(id, events); });
    connections_.emplace(id, std::move(connection));
  }
}

// Few descriptors are left: connections that never said anything go first.
bool StoreServer::drop_oldest_stranger() {
  std::optional<ConnectionId> oldest;
  for (const auto& [id, connection] : connections_) {
    if (!connection->known && (!oldest || id < *oldest)) oldest = id;
  }
  if (!oldest) return false;
  refuse(*connections_.at(*oldest), "few descriptors are left (ulimit -n) and it has not said anything");
  close(*oldest);
  return true;
}

void StoreServer::pause_accepting() {
  if (pause_) return;
  messages_.say("the store cannot take more connections: too few descriptors are left (ulimit -n)");
  loop_.change(listener_.get(), 0);
  pause_ = loop_.call_at(EventLoop::Clock::now() + std::chrono::milliseconds(200), [this] {
    pause_.reset();
    loop_.change(listener_.get(), EPOLLIN);
  });
}

void StoreServer::on_event(ConnectionId id, std::uint32_t events) {
  Connection& connection = *connections_.at(id);
  if ((events & EPOLLOUT) != 0) write_some(connection);
  if (connection.requests_waiting) {
    // A peer that is gone takes no more replies.
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) connection.broken = true;
  } else if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    read_some(connection);
  }
  answer_requests(id, connection);
  flush_woken();
  if (connection.broken) {
    close(id);
  } else {
    update_interest(connection);
  }
}

void StoreServer::read_some(Connection& connection) {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(connection.fd.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    connection.broken = true;
    return;
  }
  connection.parser.feed(std::string_view(bytes.data(), static_cast<std::size_t>(count)));
}

void StoreServer::answer_requests(ConnectionId id, Connection& connection) {
  while (!connection.broken) {
    connection.requests_waiting = connection.pending_bytes > kMaxPendingReplies;
    if (connection.requests_waiting) return;
    const std::optional<Request> request = connection.parser.next();
    if (!request) break;
    connection.known = true;
    const std::string problem = store_.handle(id, *request, *this);
    if (!problem.empty()) refuse(connection, problem);
  }
  if (!connection.parser.error().empty()) refuse(connection, connection.parser.error());
}

void StoreServer::refuse(Connection& connection, const std::string& reason) {
  if (connection.broken) return;
  connection.broken = true;
  ++refusals_;
  if (refusals_ > kMaxNamedRefusals) return;
  messages_.say("the store closed the connection of " + peer_of(connection.fd.get()) + ": " + reason +
                (refusals_ == kMaxNamedRefusals ? " (further ones are not reported)" : ""));
}

void StoreServer::close(ConnectionId id) {
  const auto found = connections_.find(id);
  store_.forget(id);
  loop_.remove(found->second->fd.get());
  connections_.erase(found);
}

void StoreServer::write_some(Connection& connection) {
  while (!connection.pending.empty()) {
    std::array<iovec, 64> vectors;
    std::size_t count = 0;
    for (const auto& piece : connection.pending) {
      if (count == vectors.size()) break;
      std::string_view bytes = piece.bytes();
      if (count == 0) bytes.remove_prefix(connection.sent_of_first);
      vectors[count].iov_base = const_cast<char*>(bytes.data());
      vectors[count].iov_len = bytes.size();
      ++count;
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(connection.fd.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) connection.broken = true;
      return;
    }
    auto left = static_cast<std::size_t>(sent);
    connection.pending_bytes -= left;
    while (!connection.pending.empty()) {
      const std::size_t of_first = connection.pending.front().bytes().size() - connection.sent_of_first;
      if (left < of_first) {
        connection.sent_of_first += left;
        break;
      }
      left -= of_first;
      connection.sent_of_first = 0;
      connection.pending.pop_front();
    }
  }
}

void StoreServer::update_interest(Connection& connection) {
  std::uint32_t wanted = 0;
  if (!connection.requests_waiting) wanted |= EPOLLIN;
  if (!connection.pending.empty() || connection.requests_waiting) wanted |= EPOLLOUT;
  if (wanted != connection.interest) {
    connection.interest = wanted;
    loop_.change(connection.fd.get(), wanted);
  }
}

// Where to append to the replies of `to`.
std::string& StoreServer::packed_replies(ConnectionId to, std::size_t size) {
  Connection& connection = *connections_.at(to);
  if (connection.pending.empty()) woken_.push_back(to);
  if (connection.pending.empty() || connection.pending.back().shared) connection.pending.emplace_back();
  connection.pending_bytes += size;
  return connection.pending.back().own;
}

void StoreServer::send_u8(ConnectionId to, std::uint8_t value) {
  append_integer(packed_replies(to, sizeof value), value);
}

void StoreServer::send_u32(ConnectionId to, std::uint32_t value) {
  append_integer(packed_replies(to, sizeof value), value);
}

void StoreServer::send_i64(ConnectionId to, std::int64_t value) {
  append_integer(packed_replies(to, sizeof value), value);
}

void StoreServer::send_bytes(ConnectionId to, const Value& value) {
  send_i64(to, static_cast<std::int64_t>(value->size()));
  if (value->size() < kShareFrom) {
    packed_replies(to, value->size()).append(*value);
    return;
  }
  Connection& connection = *connections_.at(to);
  connection.pending.push_back({value, {}});
  connection.pending_bytes += value->size();
}

// Writes the replies that one event produced, in one go per connection.
void StoreServer::flush_woken() {
  for (const ConnectionId id : std::exchange(woken_, {})) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    write_some(*found->second);
    update_interest(*found->second);
  }
}

}  // namespace launcher::store
