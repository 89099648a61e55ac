#include "launcher/watch/watched_rank.h"

#include <signal.h>
#include <unistd.h>

#include "base/progress/page_reader.h"

namespace launcher {

pid_t writer_of(const WatchedRank& rank) {
  if (rank.page == nullptr || ddp::detail::last_activity(*rank.page) == 0) return rank.pid;
  const auto writer = static_cast<pid_t>(rank.page->process.load());
  // The rank writes there what it likes.
  return writer > 0 && ::getpgid(writer) == rank.pid ? writer : rank.pid;
}

int stack_signal() {
  constexpr int kAboveFirst = 12;
  return SIGRTMIN + kAboveFirst;
}

}  // namespace launcher
