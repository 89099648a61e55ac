// Ends what the ranks left behind: looks for it again and again, asks it to stop or kills it, until there is nothing.
#pragma once

#include <functional>
#include <optional>

#include "launcher/local/processes/orphans.h"
#include "launcher/local/processes/phase.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/messages.h"

namespace launcher {

class OrphanSweep {
 public:
  // `phase` says whether to kill; `on_end` is called with kAllGone or kGiveUp when there is nothing more to do. All
  // references must outlive this.
  OrphanSweep(EventLoop& loop, Messages& messages, Orphans& orphans, const Phase& phase,
              std::function<void(PhaseEvent)> on_end);
  ~OrphanSweep();
  OrphanSweep(const OrphanSweep&) = delete;
  OrphanSweep& operator=(const OrphanSweep&) = delete;

  void begin();
  // Looks more often again: what is left has just been killed.
  void hurry();

 private:
  void look();

  EventLoop& loop_;
  Messages& messages_;
  Orphans& orphans_;
  const Phase& phase_;
  std::function<void(PhaseEvent)> on_end_;
  EventLoop::Clock::duration pause_{};  // until the next look
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace launcher
