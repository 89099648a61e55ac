// The phases of one attempt on this node, and all transitions between them. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace launcher {

enum class Phase : std::uint8_t {
  kRunning,         // the ranks run or will be started, and no stop was requested
  kStopping,        // the ranks were asked to stop, and have the grace time for it
  kKilling,         // the ranks were killed
  kEndingOrphans,   // the ranks have ended; the processes that they left running were asked to stop
  kKillingOrphans,  // the ranks have ended; the processes that they left running were killed
  kDone,            // no process remains, or the remaining ones may stay or cannot be ended
  kDismissed,       // done, and the user has sent one more signal, so ddprun does not wait for its output to be read
};

enum class PhaseEvent : std::uint8_t {
  kStop,       // a rank or another node failed, ddprun was asked to stop, or the time has expired
  kKill,       // the grace time has expired, ddprun was interrupted again, or its guardian is gone
  kRanksGone,  // the last rank has ended, and others of the job are left
  kAllGone,    // no process is left that ddprun would end
  kGiveUp,     // a killed process does not end
  kDismiss,    // one more signal
};

inline Phase next_phase(Phase phase, PhaseEvent event) {
  using enum Phase;
  constexpr std::size_t kPhases = 7;
  constexpr std::size_t kEvents = 6;
  constexpr std::array<std::array<Phase, kEvents>, kPhases> kTransitions = {{
      // kStop           kKill            kRanksGone       kAllGone    kGiveUp     kDismiss
      {kStopping, kKilling, kEndingOrphans, kDone, kDone, kRunning},                       // kRunning
      {kStopping, kKilling, kEndingOrphans, kDone, kDone, kStopping},                      // kStopping
      {kKilling, kKilling, kKillingOrphans, kDone, kDone, kKilling},                       // kKilling
      {kEndingOrphans, kKillingOrphans, kEndingOrphans, kDone, kDone, kEndingOrphans},     // kEndingOrphans
      {kKillingOrphans, kKillingOrphans, kKillingOrphans, kDone, kDone, kKillingOrphans},  // kKillingOrphans
      {kDone, kDone, kDone, kDone, kDone, kDismissed},                                     // kDone
      {kDismissed, kDismissed, kDismissed, kDismissed, kDismissed, kDismissed},            // kDismissed
  }};
  return kTransitions[static_cast<std::size_t>(phase)][static_cast<std::size_t>(event)];
}

// True when the remaining processes are being killed, not asked to stop.
constexpr bool is_killing(Phase phase) {
  return phase == Phase::kKilling || phase == Phase::kKillingOrphans;
}
// True when the ranks have ended and the processes that they left running are being ended.
constexpr bool is_ending_orphans(Phase phase) {
  return phase == Phase::kEndingOrphans || phase == Phase::kKillingOrphans;
}
constexpr bool is_done(Phase phase) {
  return phase == Phase::kDone || phase == Phase::kDismissed;
}

}  // namespace launcher
