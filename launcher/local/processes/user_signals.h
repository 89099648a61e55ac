// SIGUSR1 and SIGUSR2 end a process that has no handler for them, so ddprun passes them on only to processes that have
// one.
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

// True when a thread of `pid` is in sigwait, sigwaitinfo or sigtimedwait for the signal; the masks in /proc do not show
// that. False also when the kernel does not let ddprun read the process; it lets ancestors read it.
bool is_in_sigwait(pid_t pid, int signal_number);

// What a process does with a signal. A blocked signal may be read from a signalfd, but every process also blocks all
// signals briefly when it starts another process.
enum class Disposition { kUnknown, kTerminates, kIgnores, kBlocks, kHandles };

// Reads the disposition from the text of /proc/<pid>/status. Pure.
Disposition disposition_in(std::string_view status, int signal_number);

struct SignalTargets {
  std::vector<ProcessIdentity> handlers;
  std::vector<int>
      without;  // ranks without a process that handles the signal, where the signal would end the rank; ascending
  std::set<pid_t> blockers;        // processes that block the signal and may wait for it
  std::map<pid_t, int> undecided;  // ranks that have a blocker; they are checked once more a moment later
};

// Finds the processes that should receive a signal. `ranks`: the ranks' own processes and their numbers. If such a
// process has no handler, as the shell in `sh -c "./prog; ..."`, its nearest descendants with a handler receive the
// signal. `processes`: parents before their children. Pure except for `disposition_of`.
SignalTargets signal_targets(const std::map<pid_t, int>& ranks, const std::vector<ProcessIdentity>& processes,
                             const std::function<Disposition(pid_t)>& disposition_of);

// Finds them among the present descendants of this process.
SignalTargets signal_targets(const std::map<pid_t, int>& ranks, int signal_number);

// Decides the undecided ranks a moment later: a process that still blocks the signal, as in `before`, is waiting for
// it.
SignalTargets resolve_undecided(const SignalTargets& before, int signal_number);

// Passes SIGUSR1 and SIGUSR2 on to those processes of the ranks that have a handler for it: they end all others.
class UserSignalForwarder {
 public:
  // Both references must outlive this.
  UserSignalForwarder(EventLoop& loop, Messages& messages) : loop_(loop), messages_(messages) {}
  ~UserSignalForwarder();
  UserSignalForwarder(const UserSignalForwarder&) = delete;
  UserSignalForwarder& operator=(const UserSignalForwarder&) = delete;

  // `ranks`: the ranks' own processes and their numbers. A rank without a handler is reported once for each signal.
  void pass_on(const std::map<pid_t, int>& ranks, int signal_number);

 private:
  void send_to(const SignalTargets& targets, int signal_number);

  EventLoop& loop_;
  Messages& messages_;
  std::set<int> reported_;  // signals that were reported because a rank had no handler
  std::vector<EventLoop::TimerId> timers_;
};

}  // namespace launcher
