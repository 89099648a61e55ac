// A process below this one whose standard streams are pipes to it: ssh, or a ddprun on this machine.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher::remote {

struct ChildRequest {
  std::string file{};                    // with a `/`, or looked up in PATH
  std::vector<std::string> arguments{};  // argv[0] included
  // Empty: this process's.
  std::vector<std::string> environment{};
  std::string folder{};                 // empty: this process's
  bool must_have_folder = true;         // else `/` will do
  bool in_own_session = false;          // away from the terminal, its signals and its questions
  int signal_of_parents_end = SIGKILL;  // sent to it when this process is killed
  const sigset_t* mask = nullptr;
  int kept = -1;  // a descriptor that it is to have under the same number
};

struct ChildProcess {
  pid_t pid = -1;
  UniqueFd input;  // this process's ends, which do not block
  UniqueFd output;
  UniqueFd errors;
};

// Returns once the program runs. Throws LaunchError when it cannot.
ChildProcess start_child(const ChildRequest& request);

// How it ended, as waitid() has it; nothing while it runs.
std::optional<siginfo_t> exit_info_of(pid_t pid);

// This program's file, for a further one of it.
std::string own_program();

}  // namespace launcher::remote
