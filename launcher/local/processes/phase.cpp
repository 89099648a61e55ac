#include "launcher/local/processes/phase.h"

#include <array>
#include <cstddef>

namespace launcher {

Phase next_phase(Phase phase, PhaseEvent event) {
  using enum Phase;
  constexpr std::size_t kPhases = 7;
  constexpr std::size_t kEvents = 6;
  constexpr std::array<std::array<Phase, kEvents>, kPhases> kNext = {{
      // kStop           kKill            kRanksGone       kAllGone    kGiveUp     kDismiss
      {kStopping, kKilling, kEndingOrphans, kDone, kDone, kRunning},                       // kRunning
      {kStopping, kKilling, kEndingOrphans, kDone, kDone, kStopping},                      // kStopping
      {kKilling, kKilling, kKillingOrphans, kDone, kDone, kKilling},                       // kKilling
      {kEndingOrphans, kKillingOrphans, kEndingOrphans, kDone, kDone, kEndingOrphans},     // kEndingOrphans
      {kKillingOrphans, kKillingOrphans, kKillingOrphans, kDone, kDone, kKillingOrphans},  // kKillingOrphans
      {kDone, kDone, kDone, kDone, kDone, kDismissed},                                     // kDone
      {kDismissed, kDismissed, kDismissed, kDismissed, kDismissed, kDismissed},            // kDismissed
  }};
  return kNext[static_cast<std::size_t>(phase)][static_cast<std::size_t>(event)];
}

}  // namespace launcher
