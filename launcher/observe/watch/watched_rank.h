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
  // Nothing: no program of the library writes the rank's page.
  std::optional<ddp::detail::ProgressSnapshot> progress{};
  // The state of the process that does the rank's work; the memory is that of all processes of the rank. Nothing: it
  // has ended.
  std::optional<ProcessState> process{};
  int processes = 0;          // the rank's own process and its descendants
  std::string ended{};        // "exited with status 0"; empty while it runs
  std::uint64_t idle_us = 0;  // how long the rank has made no progress
  // The same, where a process that only runs a loop counts as idle; at least idle_us.
  std::uint64_t unchanged_us = 0;
  double cpu_share = 0;  // the number of processors that its processes used between the last two checks
  // The position of a Python program without a page; nothing when it cannot be read.
  std::optional<PythonPlace> python{};
  // Whether it has a connection to the job's store. Nothing: not checked, as for ranks that are in a group.
  std::optional<bool> at_store{};

  bool runs() const { return ended.empty(); }
  bool is_in_group() const { return progress && !progress->groups.empty(); }
};

// How long none of the running ranks has made progress; 0 when none runs. A rank that only runs a loop does not make
// progress when all others are idle, because they are waiting for it.
std::uint64_t idle_time(const std::vector<RankView>& ranks);

// The progress page that one rank shares with ddprun. It is memory without a name, and is freed when no process has it
// open any more.
class RankPage {
 public:
  // If the kernel has no memory files, there is no page, and only the rank's processes can be observed.
  RankPage();
  ~RankPage();
  RankPage(RankPage&& other) noexcept : page_(std::exchange(other.page_, nullptr)), fd_(std::move(other.fd_)) {}
  RankPage& operator=(RankPage&&) = delete;
  RankPage(const RankPage&) = delete;
  RankPage& operator=(const RankPage&) = delete;

  // The descriptor for the rank; -1 when there is no page, and after close_descriptor().
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
  std::string ended{};                                    // how it ended; empty while it runs
  std::shared_ptr<ddp::detail::TimelineRing> timeline{};  // memory for its records; null: it cannot record

  bool runs() const { return ended.empty(); }
};

// The process that writes the rank's page. It may be a descendant of the process that ddprun has started, such as a
// shell. Without a page it is the rank's process.
pid_t writer_of(const WatchedRank& rank);

// The process that does the rank's work: the one that writes its page; without a page the rank's own process, or the
// child for which a shell waits.
pid_t program_of(const WatchedRank& rank);

// The signal at which programs of the library write their stack; neither LibTorch nor handlers of users take it.
int stack_signal();

// The current ranks. Empty while they are not expected to make progress: before they are started, while they are being
// stopped, and while the job is suspended. Pages must remain valid until the next call.
using WatchedRanks = std::function<std::vector<WatchedRank>()>;

}  // namespace launcher
