// Finds the process that has a TCP connection to a port of this machine, in the kernel's table of sockets and the
// descriptors of processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace launcher {

// A socket's inode and its local port.
using PortsOfSockets = std::map<std::uint64_t, std::uint16_t>;

// Returns the sockets in a table such as /proc/net/tcp (or tcp6) whose remote port is `port`. Pure.
PortsOfSockets sockets_to_port(std::string_view table, std::uint16_t port);
// Returns such sockets of this machine, or of this container.
PortsOfSockets sockets_to_port(std::uint16_t port);

// Returns those of the sockets of which `pid` has a descriptor.
PortsOfSockets sockets_of(pid_t pid, const PortsOfSockets& sockets);

// Returns, for each connection to `port` that a descendant of the calling process has, its local port and that process.
std::map<std::uint16_t, pid_t> owners_of_connections(std::uint16_t port);

// Asks the kernel for the TCP sockets of this machine, or container, whose remote port is `port` (sock_diag). The
// kernel filters them, so the answer contains only these, while /proc/net/tcp has a line for every socket of the
// machine. Returns nothing if the kernel does not answer.
std::optional<PortsOfSockets> ask_for_sockets_to_port(std::uint16_t port);

}  // namespace launcher
