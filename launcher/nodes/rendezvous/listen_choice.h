// Where a launcher that hosts the store of several nodes listens: at the address that was agreed on, where that is its
// own.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "launcher/os/network/address.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/network/tcp_socket.h"

namespace launcher {

struct ListenChoice {
  ListenAt where{};
  std::string note{};  // for the user, when it is not the address that was agreed on
};

// `addresses` is what the name `master_addr` means here.
inline ListenChoice choose_listening(const std::string& master_addr, const std::vector<SocketAddress>& addresses) {
  const std::string everywhere = ": the store listens on all addresses of this machine";
  if (addresses.empty()) {
    return {{ListenAt::Kind::kEverywhere}, "the name " + master_addr + " cannot be resolved here" + everywhere};
  }
  // Debian gives a machine's own name a loopback address, while the other nodes know a real one.
  const bool is_own_name = numeric_addresses(master_addr, 0).empty() && !master_addr.starts_with("localhost");
  std::vector<SocketAddress> own;
  std::copy_if(addresses.begin(), addresses.end(), std::back_inserter(own), [&](const SocketAddress& address) {
    return is_own_address(address) && !(is_own_name && is_loopback(address));
  });
  if (!own.empty()) return {{ListenAt::Kind::kAddresses, std::move(own)}, ""};
  if (is_loopback(addresses.front())) {
    return {{ListenAt::Kind::kEverywhere},
            master_addr + " is " + host_in(addresses.front()) +
                " on this machine, where other machines cannot reach it" + everywhere};
  }
  const std::string number = host_in(addresses.front());
  const std::string shown = number == master_addr ? number : master_addr + " (" + number + ")";
  return {{ListenAt::Kind::kEverywhere}, shown + " is not an address of this machine" + everywhere};
}

// What to say of a job whose launchers meet at `meeting`, listen there, and share no secret; "" where others than this
// machine's users cannot reach it.
inline std::string open_to_others(const std::string& meeting, const ListenAt& where) {
  const bool is_inside = where.kind == ListenAt::Kind::kLoopback ||
                         (where.kind == ListenAt::Kind::kAddresses &&
                          std::all_of(where.addresses.begin(), where.addresses.end(), is_loopback));
  if (is_inside) return "";
  return "anyone who can connect to " + meeting +
         " can join this job: on a network with other users give all nodes --rdzv_secret_file FILE";
}

}  // namespace launcher
