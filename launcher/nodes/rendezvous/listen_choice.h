// The addresses at which the launcher that hosts the store of several nodes listens: the agreed address if it belongs
// to this machine.
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
  std::string note{};  // a message for the user when another address is used
};

// `addresses` are those to which the name `master_addr` resolves on this machine.
inline ListenChoice choose_listening(const std::string& master_addr, const std::vector<SocketAddress>& addresses) {
  const std::string everywhere = ": the store listens on all addresses of this machine";
  if (addresses.empty()) {
    return {{ListenAt::Kind::kAnyAddress}, "the name " + master_addr + " cannot be resolved here" + everywhere};
  }
  // On Debian a machine's own name resolves to a loopback address, while the other nodes see a real one.
  const bool is_own_name = numeric_addresses(master_addr, 0).empty() && !master_addr.starts_with("localhost");
  std::vector<SocketAddress> own;
  std::copy_if(addresses.begin(), addresses.end(), std::back_inserter(own), [&](const SocketAddress& address) {
    return is_own_address(address) && !(is_own_name && is_loopback(address));
  });
  if (!own.empty()) return {{ListenAt::Kind::kAddresses, std::move(own)}, ""};
  if (is_loopback(addresses.front())) {
    return {{ListenAt::Kind::kAnyAddress},
            master_addr + " is " + host_in(addresses.front()) +
                " on this machine, where other machines cannot reach it" + everywhere};
  }
  const std::string number = host_in(addresses.front());
  const std::string shown = number == master_addr ? number : master_addr + " (" + number + ")";
  return {{ListenAt::Kind::kAnyAddress}, shown + " is not an address of this machine" + everywhere};
}

// A note for a job whose launchers meet at `meeting`, listen at `where`, and share no secret; "" when only users of
// this machine can connect.
inline std::string open_port_note(const std::string& rendezvous_address, const ListenAt& where) {
  const bool is_inside = where.kind == ListenAt::Kind::kLoopback ||
                         (where.kind == ListenAt::Kind::kAddresses &&
                          std::all_of(where.addresses.begin(), where.addresses.end(), is_loopback));
  if (is_inside) return "";
  return "anyone who can connect to " + rendezvous_address +
         " can join this job: on a network with other users give all nodes --rdzv_secret_file FILE";
}

}  // namespace launcher
