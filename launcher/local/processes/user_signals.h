// SIGUSR1 and SIGUSR2 end a process that does not expect them: they are passed on to those that do.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"

namespace launcher {

// Whether a process waits for a signal by sigwait(): its masks in /proc do not say so.
// True when a thread of `pid` is in sigwait, sigwaitinfo or sigtimedwait for the signal. False also where the kernel
// does not let us look: it lets the ancestors of a process.
bool is_in_sigwait(pid_t pid, int signal_number);

// What a process does about a signal. A blocked one is perhaps read from a signalfd; but every process blocks
// all signals for a moment when it starts another one.
enum class Disposition { kUnknown, kEnds, kIgnores, kBlocks, kTakes };

// From the text of /proc/<pid>/status. Pure.
Disposition disposition_in(std::string_view status, int signal_number);

struct SignalTargets {
  std::vector<ProcessIdentity> takers;
  std::vector<int> without;  // ranks of which no process takes the signal, and the first would end of it; ascending
  std::set<pid_t> blockers;  // processes that may be waiting for it
  std::map<pid_t, int> undecided;  // ranks that have one of these: to be asked once more, in a moment
};

// The processes that a signal is meant for. `ranks`: the ranks' own processes and their numbers. Where such a process
// has no handler, as the shell in `sh -c "./prog; ..."`, the nearest ones below it that have are meant. `processes`:
// parents before their children. Pure but for `disposition_of`.
SignalTargets signal_targets(const std::map<pid_t, int>& ranks, const std::vector<ProcessIdentity>& processes,
                             const std::function<Disposition(pid_t)>& disposition_of);

// The same of the processes below this one, as they are now.
SignalTargets signal_targets(const std::map<pid_t, int>& ranks, int signal_number);

// For the undecided ranks, a moment later: what blocks the signal as it did `before` is waiting for it.
SignalTargets decided_targets(const SignalTargets& before, int signal_number);

// Passes SIGUSR1 and SIGUSR2 on to those processes of the ranks that have a handler for it: they end all others.
class UserSignalForwarder {
 public:
  // Both must outlive this.
  UserSignalForwarder(EventLoop& loop, Messages& messages) : loop_(loop), messages_(messages) {}
  ~UserSignalForwarder();
  UserSignalForwarder(const UserSignalForwarder&) = delete;
  UserSignalForwarder& operator=(const UserSignalForwarder&) = delete;

  // `ranks`: the ranks' own processes and their numbers. A rank without a handler is named once for each signal.
  void pass_on(const std::map<pid_t, int>& ranks, int signal_number);

 private:
  void send_to(const SignalTargets& targets, int signal_number);

  EventLoop& loop_;
  Messages& messages_;
  std::set<int> reported_;  // signals that some rank had no handler for
  std::vector<EventLoop::TimerId> timers_;
};

}  // namespace launcher
