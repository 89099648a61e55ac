// Distinguishes a process that only runs a loop from one that works: such a loop uses the CPU, but reads and writes
// nothing, touches no new memory, and its thread never waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

namespace launcher {

class BusyLoop {
 public:
  // Examines processes that have used the CPU. `faults` is the number of page faults of all of them so far.
  void update(const std::vector<pid_t>& family, std::uint64_t faults);
  // True when they only ran a loop between the last two calls. The value remains while they have no processor.
  bool loops() const { return loops_; }
  // Call it when they have done something else.
  void reset() { is_known_ = loops_ = false; }

 private:
  struct Thread {
    std::uint64_t ticks = 0;
    std::uint64_t waits = 0;
  };
  std::map<pid_t, Thread> threads_;
  std::uint64_t faults_ = 0;
  bool is_known_ = false;
  bool loops_ = false;
};

}  // namespace launcher
