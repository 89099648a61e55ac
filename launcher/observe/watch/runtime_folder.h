// The folder of this user's jobs on this machine: one socket for each ddprun that runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

// $XDG_RUNTIME_DIR/ddprun, or /tmp/ddprun-<user's number> if the variable is unset or its path is too long for a
// socket.
std::string runtime_folder(const char* xdg_runtime_dir, uid_t user);
std::string runtime_folder();

// Makes the folder with access for this user only. Returns "", or why it cannot be used and what to do.
std::string make_runtime_folder(const std::string& folder);

// The listening socket of the ddprun with this process number. It gets its final name when it accepts connections,
// since a socket without a listener is taken for that of a killed ddprun. Empty, with `problem` set, if it cannot be
// made.
struct ListeningSocket {
  UniqueFd fd{};
  std::string path{};
  std::string problem{};
};
ListeningSocket listen_in(const std::string& folder, pid_t pid);

// Returns a non-blocking connection. Empty, with errno set, when no process listens any more (ECONNREFUSED), or when
// the queue of connections is full (EAGAIN).
UniqueFd connect_to(const std::string& socket);

// The sockets of the folder on which a process listens. Removes sockets of ddpruns that were killed.
std::vector<std::string> live_sockets(const std::string& folder);

// The folders in which a ddprun of this network namespace listens, for all users, from the text of /proc/net/unix. It
// does not matter where their XDG_RUNTIME_DIR is. Pure.
std::vector<std::string> listening_folders(const std::string& unix_sockets);

// The sockets in another user's folder on which a process listens. Removes none, since that user may change the folder
// at the same time.
std::vector<std::string> others_sockets(const std::string& folder);

}  // namespace launcher
