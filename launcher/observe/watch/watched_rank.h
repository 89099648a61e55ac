// A rank of this node whose progress is watched.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/progress/page.h"
#include "base/timeline/layout.h"

namespace launcher {

struct WatchedRank {
  int rank = 0;
  pid_t pid = 0;
  const ddp::detail::Page* page = nullptr;                // null: there is none
  std::string ended{};                                    // how; empty while it runs
  std::shared_ptr<ddp::detail::TimelineRing> timeline{};  // what it records; null: it cannot

  bool runs() const { return ended.empty(); }
};

// The process that writes the rank's page, which may run below what ddprun has started, a shell say; else the rank's.
pid_t writer_of(const WatchedRank& rank);

// The process that does the rank's work: the one that writes its page; else, where it tells nothing, the rank's own, or
// the one below it for which a shell waits.
pid_t program_of(const WatchedRank& rank);

// The signal on which programs of the library leave their stack, one that neither LibTorch nor users' handlers take.
int stack_signal();

// The ranks as they are now; none while nobody expects them to get on: before they are started, while they are being
// stopped, and while the job is suspended. Pages must live until the next call.
using WatchedRanks = std::function<std::vector<WatchedRank>()>;

}  // namespace launcher
