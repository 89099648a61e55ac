#include "launcher/local/processes/user_signal_forwarder.h"

#include <chrono>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/signals.h"
#include "launcher/plan/outcome/describe.h"

namespace launcher {
namespace {

// How long a process may block all signals because it is starting another one.
constexpr auto kForkTime = std::chrono::milliseconds(100);

}  // namespace

UserSignalForwarder::~UserSignalForwarder() {
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
}

void UserSignalForwarder::pass_on(const std::map<pid_t, int>& ranks, int signal_number) {
  const SignalTargets targets = signal_targets(ranks, signal_number);
  send_to(targets, signal_number);
  if (targets.undecided.empty()) return;
  timers_.push_back(loop_.call_at(EventLoop::Clock::now() + kForkTime, [this, targets, signal_number] {
    send_to(decided_targets(targets, signal_number), signal_number);
  }));
}

void UserSignalForwarder::send_to(const SignalTargets& targets, int signal_number) {
  for (const ProcessIdentity& process : targets.takers) signal_process(process, signal_number);
  if (targets.without.empty() || !unheard_.insert(signal_number).second) return;
  messages_.say(signal_name(signal_number) + " was not passed on to " + rank_list(targets.without) +
                ": nothing there has a handler for it, and it would end what has none");
}

}  // namespace launcher
