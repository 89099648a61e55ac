// SIGUSR1 and SIGUSR2 end a process that does not expect them: they are passed on to those that do.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "launcher/local/processes/descendants.h"

namespace launcher {

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

}  // namespace launcher
