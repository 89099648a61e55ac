#include "launcher/processes/user_signals.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace launcher {
namespace {

using enum Disposition;

std::string status(const std::string& blocked, const std::string& ignored, const std::string& caught) {
  return "Name:\tx\nSigQ:\t0/1\nSigPnd:\t0000000000000000\nSigBlk:\t" + blocked + "\nSigIgn:\t" + ignored +
         "\nSigCgt:\t" + caught + "\nCapInh:\t0\n";
}

TEST(Disposition, IsReadFromTheMasks) {
  const std::string none = "0000000000000000";
  const std::string first = "0000000000000200";  // bit 9: SIGUSR1
  EXPECT_EQ(disposition_in(status(none, none, none), SIGUSR1), kEnds);
  EXPECT_EQ(disposition_in(status(none, none, first), SIGUSR1), kTakes);
  EXPECT_EQ(disposition_in(status(first, none, none), SIGUSR1), kBlocks);
  EXPECT_EQ(disposition_in(status(none, first, none), SIGUSR1), kIgnores);
  EXPECT_EQ(disposition_in(status(none, first, first), SIGUSR2), kEnds);
  EXPECT_EQ(disposition_in("", SIGUSR1), kUnknown);
  EXPECT_EQ(disposition_in("SigBlk:\t\nSigIgn:\tx\nSigCgt:", SIGUSR1), kUnknown);
}

class Targets : public testing::Test {
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
    for (const ProcessIdentity& process : targets.takers) found.push_back(process.pid);
    return found;
  }
  std::vector<ProcessIdentity> processes_;
  std::map<pid_t, Disposition> dispositions_;
};

TEST_F(Targets, ARankThatTakesTheSignalGetsItAloneWhateverItStarted) {
  add(10, 1, kTakes);
  add(11, 10, kTakes);
  EXPECT_EQ(pids(find({{10, 0}})), std::vector<pid_t>{10});
}

TEST_F(Targets, BehindAShellTheNearestHandlersGetIt) {
  add(10, 1, kEnds);
  add(20, 1, kTakes);
  add(11, 10, kIgnores);
  add(12, 10, kTakes);
  add(13, 11, kTakes);
  add(14, 12, kTakes);
  const SignalTargets targets = find({{10, 0}, {20, 1}});
  EXPECT_EQ(pids(targets), (std::vector<pid_t>{20, 12, 13}));
  EXPECT_TRUE(targets.without.empty());
}

TEST_F(Targets, ARankWithABlockerIsLeftForLater) {
  add(10, 1, kEnds);
  add(11, 10, kBlocks);
  add(12, 11, kTakes);
  add(20, 1, kBlocks);
  add(30, 1, kTakes);
  const SignalTargets targets = find({{10, 0}, {20, 1}, {30, 2}});
  EXPECT_EQ(pids(targets), std::vector<pid_t>{30});
  EXPECT_TRUE(targets.without.empty());
  EXPECT_EQ(targets.undecided, (std::map<pid_t, int>{{10, 0}, {20, 1}}));
  EXPECT_EQ(targets.blockers, (std::set<pid_t>{11, 20}));
}

TEST_F(Targets, RanksInWhichNobodyTakesItAreNamed) {
  add(10, 1, kEnds);
  add(20, 1, kIgnores);
  add(30, 1, kEnds);
  add(31, 30, kEnds);
  add(40, 1, kTakes);  // no rank: a helper that was left behind
  const SignalTargets targets = find({{10, 5}, {20, 6}, {30, 2}});
  EXPECT_TRUE(targets.takers.empty());
  EXPECT_EQ(targets.without, (std::vector<int>{2, 5}));
}

}  // namespace
}  // namespace launcher
