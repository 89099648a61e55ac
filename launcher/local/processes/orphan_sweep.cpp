#include "launcher/local/processes/orphan_sweep.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/local/processes/descendants.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// The next look comes after the first pause, then after pauses that grow up to the second: their own children come to
// us without notice.
constexpr auto kFirstPause = 50ms;
constexpr auto kLongestSweepPause = 400ms;

}  // namespace

OrphanSweep::OrphanSweep(EventLoop& loop, Messages& messages, Orphans& orphans, const Phase& phase,
                         std::function<void(PhaseEvent)> on_end)
    : loop_(loop), messages_(messages), orphans_(orphans), phase_(phase), on_end_(std::move(on_end)) {}

OrphanSweep::~OrphanSweep() {
  if (timer_) loop_.cancel(*timer_);
}

void OrphanSweep::begin() {
  hurry();
  look();
}

void OrphanSweep::hurry() {
  pause_ = kFirstPause;
}

void OrphanSweep::look() {
  timer_.reset();
  if (is_done(phase_)) return;
  if (!orphans_.exist()) {
    on_end_(PhaseEvent::kAllGone);
    return;
  }
  if (!identify(::getpid())) {
    messages_.say("cannot find the processes that the ranks left behind: /proc is not readable here");
    on_end_(PhaseEvent::kGiveUp);
    return;
  }
  if (is_killing(phase_)) {
    orphans_.kill();
  } else {
    orphans_.ask();
  }
  timer_ = loop_.call_at(EventLoop::Clock::now() + pause_, [this] { look(); });
  pause_ = std::min<EventLoop::Clock::duration>(2 * pause_, kLongestSweepPause);
}

}  // namespace launcher
