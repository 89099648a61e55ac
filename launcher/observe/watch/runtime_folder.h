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

// Listens at a socket of the ddprun with this process number. The socket gets its name when it accepts connections,
// since a socket without a listener counts as that of a killed ddprun. Empty, with `problem` set, if it cannot be made.
struct ListeningSocket {
  UniqueFd fd{};
  std::string path{};
  std::string problem{};
};
ListeningSocket listen_in(const std::string& folder, pid_t pid);

// A non-blocking connection. Empty, with errno set, when no process listens any more (ECONNREFUSED), or when the queue
// of connections is full (EAGAIN).
UniqueFd connect_to(const std::string& socket);

// The sockets of the folder with a listener. Sockets of ddpruns that were killed are removed.
std::vector<std::string> living_sockets(const std::string& folder);

// The folders of all users in which a ddprun of this network namespace listens, from the text of /proc/net/unix:
// wherever their XDG_RUNTIME_DIR is. Pure.
std::vector<std::string> listening_folders(const std::string& unix_sockets);

// The sockets with a listener in another user's folder. Removes nothing, since that user may change the folder at the
// same time.
std::vector<std::string> others_sockets(const std::string& folder);

}  // namespace launcher
