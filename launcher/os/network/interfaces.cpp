#include "launcher/os/network/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "base/joined.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

std::string_view address_bytes(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    const in6_addr& bytes = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
    return {reinterpret_cast<const char*>(&bytes), sizeof bytes};
  }
  const in_addr& bytes = reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr;
  return {reinterpret_cast<const char*>(&bytes), sizeof bytes};
}

bool is_same(const SocketAddress& a, const SocketAddress& b) {
  return a.storage.ss_family == b.storage.ss_family && address_bytes(a) == address_bytes(b);
}

bool is_link_local(const SocketAddress& address) {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr);
}

struct Network {
  SocketAddress address;
  unsigned bits = 0;
};

bool contains(const Network& network, const SocketAddress& address) {
  if (network.address.storage.ss_family != address.storage.ss_family) return false;
  const std::string_view theirs = address_bytes(address);
  const std::string_view ours = address_bytes(network.address);
  for (unsigned bit = 0; bit < network.bits; ++bit) {
    const auto differ = static_cast<unsigned char>(theirs[bit / 8]) ^ static_cast<unsigned char>(ours[bit / 8]);
    if (((differ >> (7 - bit % 8)) & 1) != 0) return false;
  }
  return true;
}

// Parses "10.1.0.0/16", or a single address; nothing for other text.
std::optional<Network> parse_network(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto addresses = numeric_addresses(text.substr(0, slash), 0);
  if (addresses.empty()) return std::nullopt;
  Network network{addresses.front(), static_cast<unsigned>(8 * address_bytes(addresses.front()).size())};
  if (slash == std::string::npos) return network;
  unsigned bits = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, bits);
  if (error != std::errc() || stop != end || bits > network.bits) return std::nullopt;
  network.bits = bits;
  return network;
}

std::string list(const std::vector<NetworkInterface>& interfaces) {
  if (interfaces.empty()) return "none";
  return ddp::detail::joined(interfaces, ", ", [](const NetworkInterface& interface) {
    return interface.name + " (" + ddp::detail::joined(interface.addresses, " ", host_in) + ")";
  });
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> entries(found, &::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    auto interface = std::find_if(interfaces.begin(), interfaces.end(),
                                  [&](const NetworkInterface& other) { return other.name == entry->ifa_name; });
    if (interface == interfaces.end()) {
      interface = interfaces.insert(interfaces.end(), {entry->ifa_name, (entry->ifa_flags & IFF_LOOPBACK) != 0, {}});
    }
    if (entry->ifa_addr == nullptr) continue;
    const bool is_ipv4 = entry->ifa_addr->sa_family == AF_INET;
    if (!is_ipv4 && entry->ifa_addr->sa_family != AF_INET6) continue;
    SocketAddress address;
    address.length = is_ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    if (!is_link_local(address)) interface->addresses.push_back(address);
  }
  for (NetworkInterface& interface : interfaces) {
    std::stable_partition(interface.addresses.begin(), interface.addresses.end(),
                          [](const SocketAddress& address) { return address.storage.ss_family == AF_INET; });
  }
  return interfaces;
}

std::string find_interface(const std::vector<NetworkInterface>& interfaces, const std::string& wanted) {
  const std::optional<Network> network = parse_network(wanted);
  for (const NetworkInterface& interface : interfaces) {
    if (interface.name == wanted) return interface.name;
  }
  for (const NetworkInterface& interface : interfaces) {
    if (network && std::any_of(interface.addresses.begin(), interface.addresses.end(),
                               [&](const SocketAddress& address) { return contains(*network, address); })) {
      return interface.name;
    }
  }
  throw LaunchError("--iface " + wanted + ": this machine has no such interface that is up; it has " +
                    list(interfaces));
}

std::string interface_to_choose(const std::vector<NetworkInterface>& interfaces, const std::string& own) {
  const auto address = numeric_addresses(own, 0);
  if (address.empty()) return "";
  std::string name;
  int candidates = 0;
  for (const NetworkInterface& interface : interfaces) {
    if (interface.is_loopback || interface.addresses.empty()) continue;
    ++candidates;
    if (std::any_of(interface.addresses.begin(), interface.addresses.end(),
                    [&](const SocketAddress& other) { return is_same(address.front(), other); })) {
      name = interface.name;
    }
  }
  return candidates > 1 ? name : "";
}

bool nccl_files_choose_interface() {
  const char* chosen = std::getenv("NCCL_CONF_FILE");
  const char* home = std::getenv("HOME");
  const std::string own = chosen != nullptr ? chosen : home != nullptr ? std::string(home) + "/.nccl.conf" : "";
  for (const std::string& path : {own, std::string("/etc/nccl.conf")}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("NCCL_SOCKET_IFNAME")) return true;
    }
  }
  return false;
}

}  // namespace launcher
