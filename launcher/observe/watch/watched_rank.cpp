#include "launcher/observe/watch/watched_rank.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace launcher {

std::uint64_t idle_time(const std::vector<RankView>& ranks) {
  std::optional<std::uint64_t> unchanged;
  std::uint64_t longest = 0;
  for (const RankView& rank : ranks) {
    if (!rank.runs()) continue;
    unchanged = std::min(unchanged.value_or(rank.unchanged_us), rank.unchanged_us);
    longest = std::max(longest, rank.idle_us);
  }
  return std::min(unchanged.value_or(0), longest);
}

RankPage::RankPage() {
  using ddp::detail::Page;
  UniqueFd fd(::memfd_create("ddprun-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // The mode applies to processes that open /proc/<pid>/fd/<n>.
  if (!fd || ::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), sizeof(Page)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return;
  }
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return;
  page_ = static_cast<Page*>(memory);
  page_->greeting.store(ddp::detail::kPageGreeting, std::memory_order_release);
  fd_ = std::move(fd);
}

RankPage::~RankPage() {
  if (page_ != nullptr) ::munmap(page_, sizeof(ddp::detail::Page));
}

pid_t writer_of(const WatchedRank& rank) {
  if (rank.page == nullptr || ddp::detail::last_activity(*rank.page) == 0) return rank.pid;
  const auto writer = static_cast<pid_t>(rank.page->process.load());
  // The rank can write any number to its page, so it is checked.
  return writer > 0 && ::getpgid(writer) == rank.pid ? writer : rank.pid;
}

pid_t program_of(const WatchedRank& rank) {
  constexpr int kMaxDepth = 10;
  pid_t program = writer_of(rank);
  if (program != rank.pid || (rank.page != nullptr && ddp::detail::last_activity(*rank.page) != 0)) return program;
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    const auto state = process_state(program, /*in_detail=*/true);
    const auto children = children_of(program);
    if (!state || state->state != 'S' || children.size() != 1) break;
    const auto child = process_state(children.front(), /*in_detail=*/false);
    // If the function in which it sleeps may not be read, the process that has done less is the wrapper.
    const bool waits = state->waits_in.empty()
                           ? child && child->cpu_ticks > state->cpu_ticks
                           : state->waits_in.starts_with("do_wait") || state->waits_in.starts_with("__do_wait");
    if (!child || !waits) break;
    program = children.front();
  }
  return program;
}

int stack_signal() {
  constexpr int kSignalOffset = 12;
  return SIGRTMIN + kSignalOffset;
}

}  // namespace launcher
