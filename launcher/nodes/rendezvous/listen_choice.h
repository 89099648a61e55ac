// Where a launcher that hosts the store of several nodes listens: at the address that was agreed on, where that is its
// own.
#pragma once

#include <string>
#include <vector>

#include "launcher/os/network/address.h"
#include "launcher/os/network/listener.h"

namespace launcher {

struct ListenChoice {
  ListenAt where{};
  std::string note{};  // for the user, when it is not the address that was agreed on
};

// `addresses` is what the name `master_addr` means here.
ListenChoice choose_listening(const std::string& master_addr, const std::vector<SocketAddress>& addresses);

// What to say of a job whose launchers meet at `meeting`, listen there, and share no secret; "" where others than this
// machine's users cannot reach it.
std::string open_to_others(const std::string& meeting, const ListenAt& where);

}  // namespace launcher
