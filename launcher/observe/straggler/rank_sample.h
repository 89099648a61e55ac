// What a rank had done when it was looked at, and what the kernel and the driver know of what may hold it up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/progress/page_reader.h"
#include "launcher/os/machine/gpu_state.h"

namespace launcher {

// All but the number of CPUs since the process began.
struct Hindrances {
  std::uint64_t on_cpu_us = 0;     // its busiest thread of the moment ran; 0 where the kernel does not count
  std::uint64_t run_delay_us = 0;  // that thread was ready to run, and had no CPU
  std::uint64_t throttled_us = 0;  // its cgroup had used up its CPU time
  std::uint64_t major_faults = 0;  // pages that had to be read from swap or from a file
  std::uint64_t disk_us = 0;       // it waited for a disk; 0 where the kernel does not count
  std::uint64_t disk_looks = 0;    // times that it was seen waiting for a disk,
  std::uint64_t looks = 0;         // of so many
  int cpus = 0;                    // that it may use; 0: not known
};

struct RankSample {
  int rank = 0;
  std::string host{};
  ddp::detail::StepAccount account{};
  Hindrances held{};
  std::optional<GpuState> gpu{};
};

}  // namespace launcher
