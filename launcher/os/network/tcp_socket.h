// TCP sockets: how to listen, accept, and find the addresses of both ends.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "launcher/os/network/address.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

// Returns a non-blocking listening socket on `port` (0: the kernel chooses) of loopback, or of all addresses of the
// family, AF_INET or AF_INET6 (which accepts IPv4, too). Empty, with errno set, when that is impossible.
UniqueFd listen_on(int family, std::uint16_t port, bool loopback_only);

class PortInUse : public LaunchError {
 public:
  using LaunchError::LaunchError;
};

// Listens on loopback, or on every address of this machine, IPv6 and IPv4. Throws LaunchError when the port cannot be
// used, and PortInUse when another program has it.
UniqueFd listen_or_throw(std::uint16_t port, bool loopback_only);

// Listens on one address; its own port is ignored.
UniqueFd listen_or_throw(const SocketAddress& address, std::uint16_t port);

// Why a connection to 127.0.0.1 is impossible although listening works: in a new network namespace the loopback
// interface is down. Empty if it is possible.
std::string loopback_problem();

struct Accepted {
  UniqueFd fd{};
  std::uint16_t peer_port = 0;
  bool is_out_of_resources = false;  // there are too few descriptors or too little memory; try again later
};

// Accepts the next connection that waits at `listener`, non-blocking; without a descriptor if no connection waits.
Accepted accept_connection(int listener);

// After so many accepted connections the other work of the event loop comes first.
inline constexpr int kMaxConsecutiveAccepts = 64;

// Sets options of a connection: small messages are sent at once, and a lost peer is detected.
void set_connection_options(int fd);

// The error of a connection attempt; 0 when it succeeded.
int pending_error(int fd);
bool is_connected_to_itself(int fd);
// Whether this machine has the address, so that a server could listen there.
bool is_own_address(const SocketAddress& address);

std::uint16_t port_in(const sockaddr_storage& address);
// The numeric address, such as "10.0.0.1"; "" when that is impossible.
std::string host_in(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);
// The local port of the socket, or 0.
std::uint16_t port_of(int fd);
// The numeric address of the other end, or "".
std::string peer_address(int fd);
// The numeric address of this end, or "".
std::string local_address(int fd);
// "127.0.0.1 port 4711", for messages.
std::string peer_of(int fd);

// Returns a socket bound to a free port on all addresses, so that no other program can take the port until a server of
// this program listens there, too. Empty when that is impossible.
UniqueFd reserve_port();

// Returns a port on loopback that is free at this moment, for a server that another process starts. Another program may
// take it first. Throws LaunchError if no port is free.
std::uint16_t free_port();

}  // namespace launcher
