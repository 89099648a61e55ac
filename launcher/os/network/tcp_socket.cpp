#include "launcher/os/network/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace launcher {
namespace {

SocketAddress with_port(SocketAddress address, std::uint16_t port) {
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  }
  return address;
}

[[noreturn]] void throw_on_listening(std::uint16_t port, int error) {
  if (error == EADDRINUSE) {
    throw PortInUse("port " + std::to_string(port) +
                    " is in use by another program; choose another one with --master_port");
  }
  throw LaunchError("cannot listen on port " + std::to_string(port) + ": " + std::strerror(error) +
                    (error == EACCES ? " (ports below 1024 are reserved for root)" : ""));
}

}  // namespace

std::uint16_t port_in(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 ? port_in(address) : std::uint16_t{0};
}

std::string host_in(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> host{};
  return ::getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), address.length, host.data(), host.size(),
                       nullptr, 0, NI_NUMERICHOST) == 0
             ? host.data()
             : "";
}

std::string peer_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0 ? host_in(address) : "";
}

std::string local_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0 ? host_in(address) : "";
}

std::string peer_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  const std::string host = peer_address(fd);
  if (host.empty() || ::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "a connection";
  return host + " port " + std::to_string(port_in(address));
}

namespace {

// Two sockets with SO_REUSEADDR may be bound to the same port as long as only one of them listens. Returns an empty
// descriptor, with errno set, when that is impossible.
UniqueFd bound_socket(int family, std::uint16_t port, bool loopback_only) {
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
    address.sin6_port = htons(port);
    bound = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    address.sin_port = htons(port);
    bound = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  if (bound != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

}  // namespace

UniqueFd listen_on(int family, std::uint16_t port, bool loopback_only) {
  UniqueFd fd = bound_socket(family, port, loopback_only);
  if (fd && ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

UniqueFd reserve_port() {
  UniqueFd fd = bound_socket(AF_INET6, 0, false);
  return fd ? std::move(fd) : bound_socket(AF_INET, 0, false);
}

UniqueFd listen_or_throw(std::uint16_t port, bool loopback_only) {
  UniqueFd listener;
  if (!loopback_only) listener = listen_on(AF_INET6, port, false);
  // Tries IPv4 if this machine has no IPv6, or if only loopback is wanted. A port in use is an error for either family.
  if (!listener && (loopback_only || errno != EADDRINUSE)) listener = listen_on(AF_INET, port, loopback_only);
  if (!listener) throw_on_listening(port, errno);
  return listener;
}

UniqueFd listen_or_throw(const SocketAddress& address, std::uint16_t port) {
  const SocketAddress at = with_port(address, port);
  UniqueFd fd(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.length) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    throw_on_listening(port, errno);
  }
  return fd;
}

Accepted accept_connection(int listener) {
  while (true) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    UniqueFd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) return {std::move(fd), port_in(peer)};
    if (errno == EINTR || errno == ECONNABORTED) continue;
    return {.is_out_of_resources = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS};
  }
}

void set_connection_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

int pending_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

bool is_connected_to_itself(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) return false;
  return own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

bool is_own_address(const SocketAddress& address) {
  const SocketAddress any_port = with_port(address, 0);
  const UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any_port.storage), any_port.length) == 0;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    const in6_addr& bytes = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&bytes) != 0;
  }
  return (ntohl(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr.s_addr) >> 24) == 127;
}

std::uint16_t free_port() {
  const UniqueFd listener = listen_on(AF_INET, 0, true);
  if (!listener) throw LaunchError(std::string("cannot find a free port: ") + std::strerror(errno));
  return port_of(listener.get());
}

std::string loopback_problem() {
  // connect() of a datagram socket only looks up the route, and sends nothing.
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(9);
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return "";
  return std::string("127.0.0.1 cannot be reached (") + std::strerror(errno) +
         "), where ranks connect: the loopback interface is down (as root: ip link set lo up)";
}

}  // namespace launcher
