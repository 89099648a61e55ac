// What the kernel knows of what delays a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/observe/straggler/step_interval.h"

namespace launcher {

// From the text of /proc/<pid>/schedstat, or of a thread's: how long it ran, and how long it was ready and did not.
// Pure.
struct Scheduled {
  std::uint64_t on_cpu_us = 0;
  std::uint64_t run_delay_us = 0;
};
Scheduled scheduled_in(std::string_view schedstat);
// From the text of a cgroup's cpu.stat, v2 or v1. Pure.
std::uint64_t throttled_us(std::string_view cpu_stat);

class KernelFigures {
 public:
  // What is not to be known stays 0. Counts in how many looks it was seen waiting for a disk.
  DelayCounters look_at(pid_t pid);
  // Forgets the processes that were looked at.
  void forget() { known_.clear(); }

 private:
  struct Known {
    std::string cpu_stat{};                                      // of its cgroup; empty: none
    std::optional<std::uint64_t> processor_time = std::nullopt;  // at the last look
    DelayCounters delays{};
    std::map<pid_t, Scheduled> threads{};  // at the last look
    Scheduled busiest{};                   // sums of the busiest thread's of each look
  };
  static void look_at_threads(pid_t pid, Known& known);

  std::map<pid_t, Known> known_;
};

}  // namespace launcher
