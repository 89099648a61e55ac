#include "launcher/observe/watch/watched_rank.h"

#include <signal.h>
#include <unistd.h>

#include "base/progress/page_reader.h"
#include "launcher/observe/watch/process_state.h"

namespace launcher {

pid_t writer_of(const WatchedRank& rank) {
  if (rank.page == nullptr || ddp::detail::last_activity(*rank.page) == 0) return rank.pid;
  const auto writer = static_cast<pid_t>(rank.page->process.load());
  // The rank writes there what it likes.
  return writer > 0 && ::getpgid(writer) == rank.pid ? writer : rank.pid;
}

pid_t program_of(const WatchedRank& rank) {
  constexpr int kDeepest = 10;
  pid_t program = writer_of(rank);
  if (program != rank.pid || (rank.page != nullptr && ddp::detail::last_activity(*rank.page) != 0)) return program;
  for (int depth = 0; depth < kDeepest; ++depth) {
    const auto state = process_state(program, /*in_detail=*/true);
    const auto children = children_of(program);
    if (!state || state->state != 'S' || children.size() != 1) break;
    const auto child = process_state(children.front(), /*in_detail=*/false);
    // Where nobody may know what it sleeps in, a wrapper has done less than its program.
    const bool waits = state->waits_in.empty() ? child && child->cpu_ticks > state->cpu_ticks
                                               : state->waits_in.find("do_wait") != std::string::npos;
    if (!child || !waits) break;
    program = children.front();
  }
  return program;
}

int stack_signal() {
  constexpr int kAboveFirst = 12;
  return SIGRTMIN + kAboveFirst;
}

}  // namespace launcher
