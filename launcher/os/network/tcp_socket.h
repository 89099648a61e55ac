// TCP sockets: listening ones, and who is at the other end.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "launcher/os/network/address.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

// Not blocking, on `port` (0: the kernel chooses) of loopback or of all addresses of the family, AF_INET or AF_INET6
// (which takes IPv4 too). Empty, with errno set, when that is impossible.
UniqueFd listen_on(int family, std::uint16_t port, bool loopback_only);

class PortInUse : public LaunchError {
 public:
  using LaunchError::LaunchError;
};

// On loopback, or on every address of this machine, IPv6 and IPv4. Throws LaunchError when the port cannot be had, and
// PortInUse when somebody else has it.
UniqueFd listen_or_throw(std::uint16_t port, bool loopback_only);

// The same on one address, whatever its port.
UniqueFd listen_or_throw(const SocketAddress& address, std::uint16_t port);

// Why connecting to 127.0.0.1 is impossible although listening works: a new network namespace has its loopback
// interface down. Empty if it is possible.
std::string loopback_problem();

struct Accepted {
  UniqueFd fd{};
  std::uint16_t peer_port = 0;
  bool is_out_of_resources = false;  // descriptors or memory are short: to be tried again later
};

// The next connection that waits at `listener`, not blocking; without a descriptor if none does.
Accepted accept_connection(int listener);

// Then the event loop's other work comes first, however many connections wait.
inline constexpr int kAcceptedInARow = 64;

// Of a connection: small messages go at once, and a peer that is gone is noticed.
void set_connection_options(int fd);

// The error of a connection that was being made, 0 when it was made.
int pending_error(int fd);
bool is_connected_to_itself(int fd);
// This machine has it: a server could listen there.
bool is_own_address(const SocketAddress& address);

std::uint16_t port_in(const sockaddr_storage& address);
// In numbers, as "10.0.0.1"; "" when that is impossible.
std::string host_in(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);
// The port of the socket's own end, or 0.
std::uint16_t port_of(int fd);
// The address of the other end in numbers, or "".
std::string peer_address(int fd);
// That of this end.
std::string local_address(int fd);
// "127.0.0.1 port 4711", for messages.
std::string peer_of(int fd);

// A socket that holds a free port on all addresses, so that no other program can take it, until a server of ours
// listens there too. Empty otherwise.
UniqueFd reserve_port();

// A port on loopback that was free a moment ago, for a server that another process starts. Another program may take it
// first. Throws LaunchError if no port is free.
std::uint16_t free_port();

}  // namespace launcher
