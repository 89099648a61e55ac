// What the kernel tells about a rank's process: whether it computes, sleeps or is stopped.
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
  std::uint64_t io_bytes = 0;   // read and written, of any kind; 0 where nobody may know
  std::uint64_t resident_bytes = 0;
  std::uint64_t minor_faults = 0;     // pages that had to be mapped
  std::uint64_t major_faults = 0;     // pages that had to be read
  std::uint64_t disk_wait_ticks = 0;  // 0 where the kernel does not count them
  std::string waits_in{};             // the kernel's function; empty where it runs, or nobody may know

  bool is_stopped() const { return state == 'T' || state == 't'; }
};

// From the text of /proc/<pid>/stat, without io_bytes and waits_in. Pure.
std::optional<ProcessState> parse_process_state(std::string_view stat, std::uint64_t page_bytes);

// The sum of rchar and wchar in the text of /proc/<pid>/io. Pure.
std::uint64_t io_bytes_in(std::string_view io);

// True where the text of /proc/<pid>/status says that a handler of the process's own takes the signal. Pure.
bool takes_signal(std::string_view status, int signal_number);

// The same of a thread that blocks the signal. Pure.
bool blocks_signal(std::string_view status, int signal_number);

// The count of waits in the text of /proc/<pid>/status: how often the thread has given its processor away. Pure.
std::uint64_t voluntary_switches_in(std::string_view status);

// The process as it is now; nothing when it is gone. `in_detail`: with what it waits in.
std::optional<ProcessState> process_state(pid_t pid, bool in_detail);

// The same without io_bytes and waits_in: one file is read instead of two or three.
std::optional<ProcessState> process_stat(pid_t pid);

// Nanoseconds of processor time of all threads of the process. One system call, exact: a process of which it is the
// same as before has done nothing meanwhile. Nothing when the process is gone or the kernel does not say.
std::optional<std::uint64_t> processor_time(pid_t pid);

// Of a thread, by its number; 0 when it is gone.
std::uint64_t voluntary_switches(pid_t thread);
// The threads of a process, in no order.
std::vector<pid_t> thread_numbers(pid_t pid);

// The processes that this one has started and that have not ended.
std::vector<pid_t> children_of(pid_t pid);
// A process and all below it, parents before their children.
std::vector<pid_t> family_of(pid_t pid);

// What a process and all below it have done so far.
struct FamilyWork {
  std::uint64_t cpu_ticks = 0;
  std::uint64_t io_bytes = 0;
  std::uint64_t resident_bytes = 0;        // what they share counts for each
  std::uint64_t faults = 0;                // pages that had to be mapped or read
  bool is_ready = false;                   // one of them runs, or would if it had a processor
  std::map<pid_t, std::uint64_t> ticks{};  // of each of them
};
FamilyWork family_work(const std::vector<pid_t>& family);
// The sum of their processor_time(); nothing when one of them has none.
std::optional<std::uint64_t> family_time(const std::vector<pid_t>& family);
// One of them runs, or would if it had a processor.
bool is_any_ready(const std::vector<pid_t>& family);
// Ticks of processor time since `before`, of those that were there then.
std::uint64_t ticks_since(const FamilyWork& before, const FamilyWork& now);

// Seconds of processor time.
double seconds_of_ticks(std::uint64_t ticks);

// "running", "sleeping in futex_wait", "stopped by a signal".
std::string to_text(const ProcessState& state);

}  // namespace launcher
