// The folder of this user's jobs on this machine: one socket for each ddprun that runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/system/unique_fd.h"

namespace launcher {

// $XDG_RUNTIME_DIR/ddprun, or /tmp/ddprun-<user's number> where that is unset or would be too long for a socket's name.
std::string runtime_folder(const char* xdg_runtime_dir, uid_t user);
std::string runtime_folder();

// Makes the folder, for this user alone. False where it cannot be made, or is not this user's alone.
bool make_runtime_folder(const std::string& folder);

// The socket of the ddprun with this process number.
std::string socket_in(const std::string& folder, pid_t pid);

// A connection, which does not block for long; empty when nobody listens there any more.
UniqueFd connect_to(const std::string& socket);

// The sockets of the folder that somebody listens at. Those of ddpruns that were killed are removed.
std::vector<std::string> living_sockets(const std::string& folder);

}  // namespace launcher
