#include "launcher/local/processes/phase.h"

#include <array>
#include <set>

#include "tests/support/catch.h"

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

TEST_CASE("Phase: a job that ends by itself is done") {
  CHECK(after({kAllGone}) == Phase::kDone);
  CHECK(after({kRanksGone, kAllGone}) == Phase::kDone);
}

TEST_CASE("Phase: what is left is asked, then killed") {
  CHECK(after({kStop}) == Phase::kStopping);
  CHECK(after({kStop, kRanksGone}) == Phase::kEndingOrphans);
  CHECK(after({kStop, kKill}) == Phase::kKilling);
  CHECK(after({kStop, kKill, kRanksGone}) == Phase::kKillingOrphans);
  CHECK(after({kStop, kRanksGone, kKill}) == Phase::kKillingOrphans);
}

TEST_CASE("Phase: killing is never taken back") {
  for (const Phase phase : kPhases) {
    if (!is_killing(phase)) continue;
    for (const PhaseEvent event : kEvents) {
      CAPTURE(phase, event);
      const Phase next = next_phase(phase, event);
      CHECK((is_killing(next) || next == Phase::kDone));
    }
  }
}

TEST_CASE("Phase: the ranks do not come back") {
  for (const Phase phase : kPhases) {
    if (!is_ending_orphans(phase) && !is_done(phase)) continue;
    for (const PhaseEvent event : kEvents) {
      CAPTURE(phase, event);
      const Phase next = next_phase(phase, event);
      CHECK((is_ending_orphans(next) || is_done(next)));
    }
  }
}

TEST_CASE("Phase: only a signal after the end dismisses") {
  for (const Phase phase : kPhases) {
    for (const PhaseEvent event : kEvents) {
      CAPTURE(phase, event);
      const bool is_dismissed = next_phase(phase, event) == Phase::kDismissed;
      CHECK(is_dismissed == (phase == Phase::kDismissed || (phase == Phase::kDone && event == kDismiss)));
    }
  }
}

TEST_CASE("Phase: every phase is reached and ends when all are gone") {
  std::set<Phase> reached = {Phase::kRunning};
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const Phase phase : std::set<Phase>(reached)) {
      for (const PhaseEvent event : kEvents) reached.insert(next_phase(phase, event));
    }
  }
  CHECK(reached.size() == kPhases.size());
  for (const Phase phase : kPhases) {
    CAPTURE(phase);
    CHECK(is_done(next_phase(phase, kAllGone)));
    CHECK(is_done(next_phase(phase, kGiveUp)));
  }
}

}  // namespace
}  // namespace launcher
