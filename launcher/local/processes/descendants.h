// Finds the descendants of a process in /proc by their parents. It is used only for processes that ddprun itself
// started. ddprun is their subreaper, so their children stay descendants of ddprun when they end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

// The kernel may reuse a process number at any time. A process number and a start time together are unique.
struct ProcessIdentity {
  pid_t pid = -1;
  pid_t parent = -1;
  pid_t group = -1;
  char state = '?';        // Z: ended, waiting to be reaped
  bool is_ending = false;  // it is exiting, perhaps while it writes a core file
  std::uint64_t start_time = 0;
};

// Parses the text of /proc/<pid>/stat. Pure. The command in it may contain any character, also ')'.
std::optional<ProcessIdentity> parse_process_stat(std::string_view text);

std::optional<ProcessIdentity> identify(pid_t pid);

// Returns children, grandchildren and so on, parents before their children. Zombies are left out.
std::vector<ProcessIdentity> descendants_of(pid_t root);

// The value of a variable in the environment with which the process was started; nothing if it was not set or may not
// be read.
std::optional<std::string> variable_of(pid_t pid, std::string_view name);

// Sends the signal if `process` is still the same one. False when it is gone or may not be signalled.
bool signal_process(const ProcessIdentity& process, int signal_number);

}  // namespace launcher
