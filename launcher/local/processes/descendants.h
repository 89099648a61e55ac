// The processes below one process, by parentage, from /proc. Used only on processes that ddprun itself started: it is
// their subreaper, so whatever they leave behind stays below it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

// The kernel may reuse a process number for another process at any time. A process number with its start time is
// unique.
struct ProcessIdentity {
  pid_t pid = -1;
  pid_t parent = -1;
  pid_t group = -1;
  char state = '?';        // Z: ended, waiting to be reaped
  bool is_ending = false;  // on its way out of the kernel, perhaps writing a core file
  std::uint64_t start_time = 0;
};

// The text of /proc/<pid>/stat. Pure. The command in it may hold any character, ')' too.
std::optional<ProcessIdentity> parse_process_stat(std::string_view text);

std::optional<ProcessIdentity> identify(pid_t pid);

// Children, grandchildren and so on, parents before their children; without those that only wait to be reaped.
std::vector<ProcessIdentity> descendants_of(pid_t root);

// The value of an environment variable with which the process was started; nothing if it was not set or may not be
// read.
std::optional<std::string> variable_of(pid_t pid, std::string_view name);

// Sends the signal if `process` is still the same one. False when it is gone or may not be signalled.
bool signal_process(const ProcessIdentity& process, int signal_number);

}  // namespace launcher
