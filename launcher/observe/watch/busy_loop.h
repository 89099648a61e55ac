// Distinguishes a process that only loops from one that works: a looping process computes, but reads and writes
// nothing, touches no new memory, and its computing thread waits for nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

namespace launcher {

class BusyLoop {
 public:
  // Looks at processes that have computed. `faults` are those of all of them so far.
  void look(const std::vector<pid_t>& family, std::uint64_t faults);
  // All that they did between the last two looks was to loop. So it is while they have no processor.
  bool loops() const { return loops_; }
  // They have done something else.
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
