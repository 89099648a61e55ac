// Which process has a TCP connection to a port of this machine: from the kernel's table of sockets and the descriptors
// of processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace launcher {

// A socket's inode and the port of its own end.
using PortsOfSockets = std::map<std::uint64_t, std::uint16_t>;

// The sockets in a table like /proc/net/tcp (or tcp6) whose other end has `port`. Pure.
PortsOfSockets sockets_to_port(std::string_view table, std::uint16_t port);
// The same of this machine, or of this container.
PortsOfSockets sockets_to_port(std::uint16_t port);

// Those of the sockets that `pid` has a descriptor of.
PortsOfSockets sockets_of(pid_t pid, const PortsOfSockets& sockets);

// Which process below the calling one has the other end of the connections to `port`, by that end's own port.
std::map<std::uint16_t, pid_t> owners_of_connections(std::uint16_t port);

// Asks the kernel for TCP sockets (sock_diag). It looks for them itself, so the answer has only those that are wanted,
// where /proc/net/tcp has a line for every socket of the machine.
// The sockets of this machine, or container, whose other end has `port`. Nothing where the kernel does not answer.
std::optional<PortsOfSockets> ask_for_sockets_to_port(std::uint16_t port);

}  // namespace launcher
