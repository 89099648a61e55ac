// A rank of this node whose progress is watched.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/progress/page.h"
#include "base/progress/page_reader.h"
#include "base/timeline/layout.h"
#include "launcher/observe/watch/process_state.h"
#include "launcher/observe/watch/python_frames.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct RankView {
  int rank = 0;
  std::string host{};
  pid_t pid = 0;
  // Nothing: no program of the library writes the rank's page, as with Python.
  std::optional<ddp::detail::ProgressSnapshot> progress{};
  // Of the process that does the rank's work; the memory is of all processes of the rank. Nothing: it has ended.
  std::optional<ProcessState> process{};
  int processes = 0;          // the rank's own and those below it
  std::string ended{};        // "exited with status 0"; empty while it runs
  std::uint64_t idle_us = 0;  // how long no progress of it was seen
  // The same, where a loop that does nothing else is not progress: at least idle_us.
  std::uint64_t unchanged_us = 0;
  double cpu_share = 0;  // processors that it and those below it used between the last two looks
  // Where a Python program is that reports nothing; nothing where that cannot be seen.
  std::optional<PythonPlace> python{};
  // It has a connection to the job's store. Nothing: not asked, as for ranks that are in a group.
  std::optional<bool> at_store{};

  bool runs() const { return ended.empty(); }
  bool is_in_group() const { return progress && !progress->groups.empty(); }
};

// How long none of the running ranks has made progress; 0 when none runs. A rank that loops makes none where others do
// nothing at all: it is for that rank that they wait.
std::uint64_t idle_time(const std::vector<RankView>& ranks);

// The progress page that one rank shares with ddprun: memory without a name, which is gone with those who have it.
class RankPage {
 public:
  // Without a page where the kernel has no memory files; then the rank is seen from outside only.
  RankPage();
  ~RankPage();
  RankPage(RankPage&& other) noexcept : page_(std::exchange(other.page_, nullptr)), fd_(std::move(other.fd_)) {}
  RankPage& operator=(RankPage&&) = delete;
  RankPage(const RankPage&) = delete;
  RankPage& operator=(const RankPage&) = delete;

  // For the rank alone; -1 when there is no page, and once close_descriptor() was called.
  int descriptor() const { return fd_.get(); }
  void close_descriptor() { fd_.reset(); }

  // Null when there is no page.
  const ddp::detail::Page* page() const { return page_; }

 private:
  ddp::detail::Page* page_ = nullptr;
  UniqueFd fd_;
};

struct WatchedRank {
  int rank = 0;
  pid_t pid = 0;
  const ddp::detail::Page* page = nullptr;                // null: none
  std::string ended{};                                    // how; empty while it runs
  std::shared_ptr<ddp::detail::TimelineRing> timeline{};  // what it records; null: it cannot

  bool runs() const { return ended.empty(); }
};

// The process that writes the rank's page, which may run below what ddprun has started, a shell say; else the rank's.
pid_t writer_of(const WatchedRank& rank);

// The process that does the rank's work: the one that writes its page; else, where it reports nothing, the rank's own,
// or the one below it for which a shell waits.
pid_t program_of(const WatchedRank& rank);

// The signal on which programs of the library leave their stack, one that neither LibTorch nor users' handlers take.
int stack_signal();

// The current ranks. Empty while they are not expected to make progress: before they are started, while they are being
// stopped, and while the job is suspended. Pages must live until the next call.
using WatchedRanks = std::function<std::vector<WatchedRank>()>;

}  // namespace launcher
