// What the kernel knows of what holds up a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "launcher/straggler/rank_sample.h"

namespace launcher {

// From the text of /proc/<pid>/schedstat. Pure.
std::uint64_t run_delay_us(std::string_view schedstat);
// From the text of a cgroup's cpu.stat, v2 or v1. Pure.
std::uint64_t throttled_us(std::string_view cpu_stat);

class KernelFigures {
 public:
  // What is not to be known stays 0. Counts in how many looks it was seen waiting for a disk.
  Hindrances look_at(pid_t pid);
  // Forgets the processes that were looked at.
  void forget() { known_.clear(); }

 private:
  struct Known {
    std::string cpu_stat{};  // of its cgroup; empty: none
    std::uint64_t looks = 0;
    std::uint64_t disk_looks = 0;
  };
  std::map<pid_t, Known> known_;
};

}  // namespace launcher
