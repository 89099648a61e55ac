// Asks the kernel for TCP sockets (sock_diag). It looks for them itself, so the answer has only those that are wanted,
// where /proc/net/tcp has a line for every socket of the machine.
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/local/processes/socket_owners.h"

namespace launcher {

// The sockets of this machine, or container, whose other end has `port`. Nothing where the kernel does not answer.
std::optional<PortsOfSockets> ask_for_sockets_to_port(std::uint16_t port);

}  // namespace launcher
