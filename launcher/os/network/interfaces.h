// This machine's network interfaces, and which of them a user means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/network/address.h"

namespace launcher {

struct NetworkInterface {
  std::string name{};
  bool is_loopback = false;
  std::vector<SocketAddress> addresses{};  // IPv4 first; none that are link-local
};

// Those that are up, in the kernel's order.
std::vector<NetworkInterface> network_interfaces();

// The name of the interface that `wanted` means: a name, an address, or a network as "10.0.0.0/8", of which the first
// interface with an address is taken. Throws LaunchError with what there is. Pure.
std::string find_interface(const std::vector<NetworkInterface>& interfaces, const std::string& wanted);

// The one with the address `own`, where a program could take another one: "" when that is a loopback, when nobody has
// it, and when there is nothing to choose. Pure.
std::string interface_to_choose(const std::vector<NetworkInterface>& interfaces, const std::string& own);

// NCCL's own files (NCCL_CONF_FILE or ~/.nccl.conf, /etc/nccl.conf) choose one, which a variable would override.
bool nccl_files_choose_interface();

}  // namespace launcher
