// What the ranks left running: asks each process to stop once, as a program may take a second signal for "at once", and
// kills what stays.
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

  // The processes that are in `group` now have just been sent `signal_number`, all at once.
  void note_asked(pid_t group, int signal_number);
  // SIGTERM to each process that has not been asked to stop, or ignores the signal that asked.
  void ask();
  void kill() const;
  // There is a child, dead or alive, or a member of the cgroup.
  bool exist() const;

 private:
  struct Asked {
    int signal_number = 0;
    std::uint64_t time = 0;  // as start times are given
  };
  bool was_asked_with_group(const ProcessIdentity& process) const;

  const JobCgroup* cgroup_;
  std::map<pid_t, Asked> groups_;
  std::set<std::pair<pid_t, std::uint64_t>> asked_;  // by number and start time, one by one
};

// Ends what the ranks left behind: looks for it again and again, asks it to stop or kills it, until there is nothing.
class OrphanSweep {
 public:
  // `phase` says whether to kill; `on_end` is called with kAllGone or kGiveUp when there is nothing more to do. All
  // references must outlive this.
  OrphanSweep(EventLoop& loop, Messages& messages, Orphans& orphans, const Phase& phase,
              std::function<void(PhaseEvent)> on_end);

  void begin();
  // Checks more often again, after the remaining processes have been killed.
  void shorten_interval();

 private:
  void look();

  EventLoop& loop_;
  Messages& messages_;
  Orphans& orphans_;
  const Phase& phase_;
  std::function<void(PhaseEvent)> on_end_;
  EventLoop::Clock::duration pause_{};  // until the next look
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
