#include "launcher/local/processes/user_signals.h"

#include <signal.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

using enum Disposition;

std::string status(const std::string& blocked, const std::string& ignored, const std::string& caught) {
  return "Name:\tx\nSigQ:\t0/1\nSigPnd:\t0000000000000000\nSigBlk:\t" + blocked + "\nSigIgn:\t" + ignored +
         "\nSigCgt:\t" + caught + "\nCapInh:\t0\n";
}

TEST_CASE("Disposition: is read from the masks") {
  const std::string none = "0000000000000000";
  const std::string first = "0000000000000200";  // bit 9: SIGUSR1
  CHECK(disposition_in(status(none, none, none), SIGUSR1) == kTerminates);
  CHECK(disposition_in(status(none, none, first), SIGUSR1) == kHandles);
  CHECK(disposition_in(status(first, none, none), SIGUSR1) == kBlocks);
  CHECK(disposition_in(status(none, first, none), SIGUSR1) == kIgnores);
  CHECK(disposition_in(status(none, first, first), SIGUSR2) == kTerminates);
  CHECK(disposition_in("", SIGUSR1) == kUnknown);
  CHECK(disposition_in("SigBlk:\t\nSigIgn:\tx\nSigCgt:", SIGUSR1) == kUnknown);
}

class Targets {
 protected:
  void add(pid_t pid, pid_t parent, Disposition disposition) {
    processes_.push_back({.pid = pid, .parent = parent});
    dispositions_[pid] = disposition;
  }
  SignalTargets find(const std::map<pid_t, int>& ranks) {
    return signal_targets(ranks, processes_, [this](pid_t pid) { return dispositions_.at(pid); });
  }
  static std::vector<pid_t> pids(const SignalTargets& targets) {
    std::vector<pid_t> found;
    for (const ProcessIdentity& process : targets.handlers) found.push_back(process.pid);
    return found;
  }
  std::vector<ProcessIdentity> processes_;
  std::map<pid_t, Disposition> dispositions_;
};

TEST_CASE_METHOD(Targets, "Targets: a rank that takes the signal gets it alone, whatever it started") {
  add(10, 1, kHandles);
  add(11, 10, kHandles);
  CHECK(pids(find({{10, 0}})) == std::vector<pid_t>{10});
}

TEST_CASE_METHOD(Targets, "Targets: behind a shell the nearest handlers get it") {
  add(10, 1, kTerminates);
  add(20, 1, kHandles);
  add(11, 10, kIgnores);
  add(12, 10, kHandles);
  add(13, 11, kHandles);
  add(14, 12, kHandles);
  const SignalTargets targets = find({{10, 0}, {20, 1}});
  CHECK(pids(targets) == std::vector<pid_t>{20, 12, 13});
  CHECK(targets.without.empty());
}

TEST_CASE_METHOD(Targets, "Targets: a rank with a blocker is left for later") {
  add(10, 1, kTerminates);
  add(11, 10, kBlocks);
  add(12, 11, kHandles);
  add(20, 1, kBlocks);
  add(30, 1, kHandles);
  const SignalTargets targets = find({{10, 0}, {20, 1}, {30, 2}});
  CHECK(pids(targets) == std::vector<pid_t>{30});
  CHECK(targets.without.empty());
  CHECK(targets.undecided == std::map<pid_t, int>{{10, 0}, {20, 1}});
  CHECK(targets.blockers == std::set<pid_t>{11, 20});
}

TEST_CASE_METHOD(Targets, "Targets: ranks in which nobody takes it are named") {
  add(10, 1, kTerminates);
  add(20, 1, kIgnores);
  add(30, 1, kTerminates);
  add(31, 30, kTerminates);
  add(40, 1, kHandles);  // no rank: a helper that was left behind
  const SignalTargets targets = find({{10, 5}, {20, 6}, {30, 2}});
  CHECK(targets.handlers.empty());
  CHECK(targets.without == std::vector<int>{2, 5});
}

}  // namespace
}  // namespace launcher
