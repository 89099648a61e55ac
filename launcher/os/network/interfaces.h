// This machine's network interfaces, and which of them the user means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/network/address.h"

namespace launcher {

struct NetworkInterface {
  std::string name{};
  bool is_loopback = false;
  std::vector<SocketAddress> addresses{};  // IPv4 first; without link-local addresses
};

// The interfaces that are up, in the kernel's order.
std::vector<NetworkInterface> network_interfaces();

// Returns the name of the interface that `wanted` describes: a name, an address, or a network such as "10.0.0.0/8", for
// which the first interface with such an address is used. Throws LaunchError, which lists the interfaces. Pure.
std::string find_interface(const std::vector<NetworkInterface>& interfaces, const std::string& wanted);

// Returns the interface with the address `own` if a program could choose another one. Returns "" for a loopback
// address, for an address that no interface has, and when there is only one interface. Pure.
std::string interface_to_choose(const std::vector<NetworkInterface>& interfaces, const std::string& own);

// Whether NCCL's own files (NCCL_CONF_FILE or ~/.nccl.conf, /etc/nccl.conf) set an interface, which a variable would
// override.
bool nccl_files_choose_interface();

}  // namespace launcher
