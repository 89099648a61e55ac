// Ends the processes that the ranks left running. Each is asked to stop only once, as a program may take a second
// signal as a request to end at once. The remaining ones are killed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "launcher/local/processes/descendants.h"
#include "launcher/local/processes/job_cgroup.h"
#include "launcher/local/processes/phase.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"

namespace launcher {

class Orphans {
 public:
  // `cgroup` may be null, and must outlive this.
  explicit Orphans(const JobCgroup* cgroup) : cgroup_(cgroup) {}

  // Records that `signal_number` has just been sent to all processes that are now in the process group `group`.
  void note_asked(pid_t group, int signal_number);
  // Sends SIGTERM to each process that has not been asked to stop, or that ignores the signal with which it was asked.
  void ask();
  void kill() const;
  // True when there is a child, also a zombie, or a member of the cgroup.
  bool exist() const;

 private:
  struct Asked {
    int signal_number = 0;
    std::uint64_t time = 0;  // in the unit of start times
  };
  bool was_asked_with_group(const ProcessIdentity& process) const;

  const JobCgroup* cgroup_;
  std::map<pid_t, Asked> groups_;
  // By number and start time; those that were signalled one by one.
  std::set<std::pair<pid_t, std::uint64_t>> signalled_;
};

// Repeatedly looks for processes that the ranks left running, and asks them to stop or kills them, until there are no
// more.
class OrphanSweep {
 public:
  // `phase` says whether to kill. Calls `on_end` with kAllGone or kGiveUp when there is nothing more to do. All
  // references must outlive this.
  OrphanSweep(EventLoop& loop, Messages& messages, Orphans& orphans, const Phase& phase,
              std::function<void(PhaseEvent)> on_end);

  void begin();
  // Returns to the shortest interval, after the remaining processes have been killed.
  void shorten_interval();

 private:
  void scan();

  EventLoop& loop_;
  Messages& messages_;
  Orphans& orphans_;
  const Phase& phase_;
  std::function<void(PhaseEvent)> on_end_;
  EventLoop::Clock::duration pause_{};  // until the next look
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
