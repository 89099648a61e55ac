// A child process whose standard streams are pipes to this process: ssh, or a ddprun on this machine.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher::remote {

struct ChildRequest {
  std::string file{};                    // contains a `/`, or is looked up in PATH
  std::vector<std::string> arguments{};  // argv[0] included
  // Empty: this process's environment.
  std::vector<std::string> environment{};
  std::string folder{};               // empty: this process's working folder
  bool requires_folder = true;        // false: `/` is used if the folder does not exist
  bool in_own_session = false;        // in a session without the terminal, its signals and its questions
  int parent_death_signal = SIGKILL;  // sent to the child when this process is killed
  const sigset_t* mask = nullptr;
  int kept = -1;  // a descriptor that the child inherits under the same number
};

struct ChildProcess {
  pid_t pid = -1;
  UniqueFd input;  // this process's ends; they are non-blocking
  UniqueFd output;
  UniqueFd errors;
};

// Returns once the program runs. Throws LaunchError when it cannot be started.
ChildProcess start_child(const ChildRequest& request);

// Returns how the process ended, as waitid() does; nothing while it runs.
std::optional<siginfo_t> exit_info_of(pid_t pid);

// The file of this program, to start it once more.
std::string own_program();

}  // namespace launcher::remote
