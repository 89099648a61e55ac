// The folder of this user's jobs on this machine: one socket for each ddprun that runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

// $XDG_RUNTIME_DIR/ddprun, or /tmp/ddprun-<user's number> where that is unset or would be too long for a socket's name.
std::string runtime_folder(const char* xdg_runtime_dir, uid_t user);
std::string runtime_folder();

// Makes the folder, for this user alone. Returns "", or why it cannot be used and what to do.
std::string make_runtime_folder(const std::string& folder);

// Listens at a socket of the ddprun with this process number, which is there under its name from the moment on at which
// it can be connected to: what nobody listens at is taken for a killed one's. Empty, with `problem` set, where there
// can be none.
struct ListeningSocket {
  UniqueFd fd{};
  std::string path{};
  std::string problem{};
};
ListeningSocket listen_in(const std::string& folder, pid_t pid);

// A connection, which does not block; empty, with errno set, when nobody listens there any more (ECONNREFUSED), or
// nobody has taken the connections before it (EAGAIN).
UniqueFd connect_to(const std::string& socket);

// The sockets of the folder that somebody listens at. Those of ddpruns that were killed are removed.
std::vector<std::string> living_sockets(const std::string& folder);

// The folders of all users in which a ddprun of this network namespace listens, from the text of /proc/net/unix:
// wherever their XDG_RUNTIME_DIR is. Pure.
std::vector<std::string> listening_folders(const std::string& unix_sockets);

// The sockets of another user's folder that somebody listens at. Removes nothing: its user may change the folder
// meanwhile.
std::vector<std::string> others_sockets(const std::string& folder);

}  // namespace launcher
