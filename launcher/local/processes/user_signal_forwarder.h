// Passes SIGUSR1 and SIGUSR2 on to those processes of the ranks that have a handler for it: they end all others.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <vector>

#include "launcher/local/processes/user_signals.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/messages.h"

namespace launcher {

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
  std::set<int> unheard_;  // signals that some rank had no handler for
  std::vector<EventLoop::TimerId> timers_;
};

}  // namespace launcher
