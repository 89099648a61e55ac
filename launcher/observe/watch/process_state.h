// What the kernel reports about a rank's process: whether it computes, sleeps or is stopped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct ProcessState {
  char state = '?';             // of the main thread: R, S, D, T, t, Z, as in /proc/<pid>/stat
  std::uint64_t cpu_ticks = 0;  // of all threads, user and system
  std::uint64_t io_bytes = 0;   // bytes that were read and written, of any kind; 0 if this is not permitted
  std::uint64_t resident_bytes = 0;
  std::uint64_t minor_faults = 0;     // pages that had to be mapped
  std::uint64_t major_faults = 0;     // pages that had to be read
  std::uint64_t disk_wait_ticks = 0;  // 0 where the kernel does not count them
  std::string waits_in{};  // the kernel's function in which it sleeps; empty if it runs, or if this is not permitted

  bool is_stopped() const { return state == 'T' || state == 't'; }
};

// Parses the text of /proc/<pid>/stat, which does not contain io_bytes and waits_in. Pure.
std::optional<ProcessState> parse_process_state(std::string_view stat, std::uint64_t page_bytes);

// The sum of rchar and wchar in the text of /proc/<pid>/io. Pure.
std::uint64_t io_bytes_in(std::string_view io);

// True if, according to the text of /proc/<pid>/status, the process has a handler for the signal. Pure.
bool takes_signal(std::string_view status, int signal_number);

// True if, according to that text, the thread blocks the signal. Pure.
bool blocks_signal(std::string_view status, int signal_number);

// The number of voluntary context switches in the text of /proc/<pid>/status. Pure.
std::uint64_t voluntary_switches_in(std::string_view status);

// The present state of the process; nothing when it has ended. `in_detail`: with the function in which it sleeps.
std::optional<ProcessState> process_state(pid_t pid, bool in_detail);

// The same without io_bytes and waits_in; it reads one file, not two or three.
std::optional<ProcessState> process_stat(pid_t pid);

// Processor time of all threads of the process in nanoseconds, with one system call. A process whose time has not
// changed has done nothing. Nothing when the process has ended or the kernel does not report it.
std::optional<std::uint64_t> processor_time(pid_t pid);

// The same for a thread; 0 when it has ended.
std::uint64_t voluntary_switches(pid_t thread);
// The threads of a process, in no order.
std::vector<pid_t> thread_numbers(pid_t pid);

// The children of this process that have not ended.
std::vector<pid_t> children_of(pid_t pid);
// A process and its descendants, parents before their children.
std::vector<pid_t> process_tree_of(pid_t pid);

// The work of a process and its descendants so far.
struct ProcessTreeWork {
  std::uint64_t cpu_ticks = 0;
  std::uint64_t io_bytes = 0;
  std::uint64_t resident_bytes = 0;        // memory that they share is counted for each of them
  std::uint64_t faults = 0;                // pages that had to be mapped or read
  std::vector<pid_t> ready{};              // those that run, or would run if they had a processor
  std::map<pid_t, std::uint64_t> ticks{};  // of each of them
};
ProcessTreeWork process_tree_work(const std::vector<pid_t>& family);
// The sum of their processor_time(); nothing when it is not known for one of them.
std::optional<std::uint64_t> process_tree_time(const std::vector<pid_t>& family);
// Those of the processes that run, or would run if they had a processor.
std::vector<pid_t> ready_processes(const std::vector<pid_t>& family);
// Ticks of processor time since `before`, for processes that existed then.
std::uint64_t ticks_since(const ProcessTreeWork& before, const ProcessTreeWork& now);

// Seconds of processor time.
double seconds_of_ticks(std::uint64_t ticks);

// "running", "sleeping in futex_wait", "stopped by a signal".
std::string to_text(const ProcessState& state);

}  // namespace launcher
