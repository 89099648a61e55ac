#include "launcher/local/processes/root_cause_wait.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long a rank whose peers have lost it may take to end on its own: destructors, a core file.
constexpr auto kTearDown = 4s;
// When a peer really went away, other ranks fail soon, or the peer is seen ending.
constexpr auto kOthersFollow = 500ms;

}  // namespace

void RootCauseWait::add_victim(Time now, bool is_vague) {
  if (!first_) first_ = now;
  last_ = now;
  is_vague_ = is_vague_ && is_vague;
}

bool RootCauseWait::continues(Time now, bool is_somebody_ending) const {
  if (!first_ || now >= *first_ + kTearDown) return false;
  return !is_vague_ || is_somebody_ending || now < last_ + kOthersFollow;
}

}  // namespace launcher
