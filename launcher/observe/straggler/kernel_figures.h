// The kernel's counters of events that delay a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/observe/straggler/step_interval.h"

namespace launcher {

// Parsed from the text of /proc/<pid>/schedstat, or of a thread's: how long it ran, and how long it was ready but had
// no CPU. Pure.
struct Scheduled {
  std::uint64_t on_cpu_us = 0;
  std::uint64_t run_delay_us = 0;
};
Scheduled scheduled_in(std::string_view schedstat);
// Parses the text of a cgroup's cpu.stat, v2 or v1. Pure.
std::uint64_t throttled_us(std::string_view cpu_stat);

class KernelFigures {
 public:
  // Returns the counters; those that cannot be read are 0. Each call also counts whether the process is waiting for a
  // disk.
  DelayCounters read_counters(pid_t pid);
  // Forgets the processes that were looked at.
  void forget() { known_.clear(); }

 private:
  struct KnownProcess {
    std::string cpu_stat{};                                      // the file of its cgroup; empty if it has no such file
    std::optional<std::uint64_t> processor_time = std::nullopt;  // at the last call
    DelayCounters delays{};
    std::map<pid_t, Scheduled> threads{};  // at the last call
    Scheduled busiest{};                   // the sum over all calls of the busiest thread's times
  };
  static void sample_threads(pid_t pid, KnownProcess& known);

  std::map<pid_t, KnownProcess> known_;
};

}  // namespace launcher
