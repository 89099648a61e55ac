#include "launcher/processes/phase.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace launcher {
namespace {

using enum PhaseEvent;

constexpr std::array kPhases = {Phase::kRunning,        Phase::kStopping, Phase::kKilling,  Phase::kEndingOrphans,
                                Phase::kKillingOrphans, Phase::kDone,     Phase::kDismissed};
constexpr std::array kEvents = {kStop, kKill, kRanksGone, kAllGone, kGiveUp, kDismiss};

Phase after(std::initializer_list<PhaseEvent> events) {
  Phase phase = Phase::kRunning;
  for (const PhaseEvent event : events) phase = next_phase(phase, event);
  return phase;
}

TEST(Phase, AJobThatEndsByItselfIsDone) {
  EXPECT_EQ(after({kAllGone}), Phase::kDone);
  EXPECT_EQ(after({kRanksGone, kAllGone}), Phase::kDone);
}

TEST(Phase, WhatIsLeftIsAskedThenKilled) {
  EXPECT_EQ(after({kStop}), Phase::kStopping);
  EXPECT_EQ(after({kStop, kRanksGone}), Phase::kEndingOrphans);
  EXPECT_EQ(after({kStop, kKill}), Phase::kKilling);
  EXPECT_EQ(after({kStop, kKill, kRanksGone}), Phase::kKillingOrphans);
  EXPECT_EQ(after({kStop, kRanksGone, kKill}), Phase::kKillingOrphans);
}

TEST(Phase, KillingIsNeverTakenBack) {
  for (const Phase phase : kPhases) {
    if (!is_killing(phase)) continue;
    for (const PhaseEvent event : kEvents) {
      const Phase next = next_phase(phase, event);
      EXPECT_TRUE(is_killing(next) || next == Phase::kDone);
    }
  }
}

TEST(Phase, TheRanksDoNotComeBack) {
  for (const Phase phase : kPhases) {
    if (!is_ending_orphans(phase) && !is_done(phase)) continue;
    for (const PhaseEvent event : kEvents) {
      const Phase next = next_phase(phase, event);
      EXPECT_TRUE(is_ending_orphans(next) || is_done(next));
    }
  }
}

TEST(Phase, OnlyASignalAfterTheEndDismisses) {
  for (const Phase phase : kPhases) {
    for (const PhaseEvent event : kEvents) {
      const bool is_dismissed = next_phase(phase, event) == Phase::kDismissed;
      EXPECT_EQ(is_dismissed, phase == Phase::kDismissed || (phase == Phase::kDone && event == kDismiss));
    }
  }
}

TEST(Phase, EveryPhaseIsReachedAndEndsWhenAllAreGone) {
  std::set<Phase> reached = {Phase::kRunning};
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const Phase phase : std::set<Phase>(reached)) {
      for (const PhaseEvent event : kEvents) reached.insert(next_phase(phase, event));
    }
  }
  EXPECT_EQ(reached.size(), kPhases.size());
  for (const Phase phase : kPhases) {
    EXPECT_TRUE(is_done(next_phase(phase, kAllGone)));
    EXPECT_TRUE(is_done(next_phase(phase, kGiveUp)));
  }
}

}  // namespace
}  // namespace launcher
