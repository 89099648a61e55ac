// Reports when no rank of this node makes progress: which rank delays the others, and where the ranks are in their
// programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/observe/watch/busy_loop.h"
#include "launcher/observe/watch/hang_report.h"
#include "launcher/observe/watch/process_state.h"
#include "launcher/observe/watch/thread_stacks.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"

namespace launcher {

class Observer {
 public:
  using Clock = std::chrono::steady_clock;

  // `interval`: how often observe() will be called. If more than twice this time passes between two calls, the excess
  // is not counted as idle time, since ddprun itself did not run.
  explicit Observer(std::chrono::milliseconds interval, std::string host);

  // A rank makes progress when its page changes. A rank that has not begun to train, or that has no page, also makes
  // progress when it computes, reads or writes.
  void observe(const std::vector<WatchedRank>& ranks, Clock::time_point now);
  // The idle_time() of the ranks as observe() found them.
  std::chrono::microseconds idle_time() const;
  // True when a running rank has begun to train.
  bool has_begun() const { return has_begun_; }

  // The ranks as observe() found them, with the content of their pages and what their processes wait for.
  std::vector<RankView> views(const std::vector<WatchedRank>& ranks) const;
  // The steps of a rank per second in the last checks; nothing until it is known.
  std::optional<double> steps_per_second(int rank) const;

 private:
  enum class Work : std::uint8_t { kNone, kLoop, kProgress };
  struct Track {
    // The kind of work of a rank that computes, or would compute if it had a processor.
    Work ready_work() const { return loop.loops() ? Work::kLoop : Work::kProgress; }
    // Whether one of the processes that are ready `now` has been ready since the last check. One that polls is ready
    // for moments only.
    bool stays_ready(const std::vector<pid_t>& now);
    // Whether `seconds` of processor time since the last check are those of a rank that computes.
    bool has_computed(double seconds, Clock::duration elapsed);

    pid_t pid = 0;
    std::uint64_t activity = 0;
    std::vector<pid_t> family{};
    unsigned looks = 0;
    ProcessTreeWork work{};
    std::optional<std::uint64_t> processor_time = std::nullopt;  // of the family, before `work` was read
    BusyLoop loop{};
    bool exceeded_before = false;  // at the last check its processor time was that of one that computes
    std::map<pid_t, std::uint64_t> sleeps_of_ready{};  // how often each process that was ready had slept until then
    std::chrono::microseconds idle{0};
    std::chrono::microseconds unchanged{0};
    double cpu_share = 0;
    std::uint64_t step = 0;
    std::optional<double> step_rate = std::nullopt;
    Clock::time_point step_time{};
    bool runs = false;
  };
  void observe_rank(const WatchedRank& rank, Track& track, Clock::duration elapsed, Clock::time_point now);
  static Work observe_process_tree(const WatchedRank& rank, Track& track, Clock::duration elapsed, bool has_begun);
  static void note_step(const WatchedRank& rank, Track& track, Clock::time_point now);

  const std::chrono::milliseconds interval_;
  const std::string host_;
  std::map<int, Track> tracks_;
  Clock::time_point last_look_{};
  bool has_begun_ = false;
};

struct HangWatchOptions {
  std::chrono::milliseconds timeout{};  // 0: nothing is reported
  // Also reports jobs that are not known to train.
  bool was_asked_for = false;
  std::string host{};
  int stack_signal = 0;
  WatchedRanks ranks{};
  // Returns those of the processes that take part in a job: they, or their descendants, are connected to the store. All
  // are passed in one call, because each call scans all sockets.
  std::function<std::set<pid_t>(const std::vector<pid_t>& pids)> store_users{};
  // On several nodes: asks all nodes; then report(), resume_after_hang() or diagnose_alone() is called. Null on a
  // single node.
  std::function<void(std::chrono::milliseconds timeout)> ask_others{};
  // Called after the report. `views` are this node's ranks.
  std::function<void(const HangReport& report, const std::vector<RankView>& views)> on_hang{};
  std::function<void()> on_progress{};  // after such a report, the ranks make progress again
};

class HangWatch {
 public:
  // Both references must outlive this.
  HangWatch(EventLoop& loop, Messages& messages, HangWatchOptions options);

  const Observer& observer() const { return observer_; }
  // The ranks as a report shows them.
  std::vector<RankView> views(const std::vector<WatchedRank>& ranks) const;

  // Used by `ddprun stack`.
  StackRequester& stacks() { return stacks_; }

  // Call it when the ranks of no node make progress, even if this node has not asked.
  void report(const HangReport& report);
  // Call it when ranks of other nodes make progress.
  void resume_after_hang();
  // Call it when no other node can be asked.
  void diagnose_alone();

 private:
  void check();
  bool may_report_hang();
  void begin_diagnosis();
  std::vector<int> begin_report();
  void print_report(const std::vector<RankStacks>& stacks);
  void run_hang_action();
  std::string stack_of(const WatchedRank& rank) const;

  EventLoop& loop_;
  Messages& messages_;
  HangWatchOptions options_;
  std::chrono::milliseconds interval_;
  Observer observer_;
  EventLoop::Timer timer_{loop_};
  bool is_reported_ = false;  // true when it was reported, or the other nodes were asked
  bool is_printed_ = false;
  EventLoop::Clock::time_point ask_after_{};
  EventLoop::Clock::time_point check_store_after_{};
  std::chrono::milliseconds store_pause_;  // until the next check for connections to the store
  std::vector<RankView> views_;            // the ranks when the hang was found
  std::uint64_t seen_at_ = 0;              // that moment by the page clock
  HangReport report_;
  StackRequester stacks_;
};

}  // namespace launcher
