// Reports when no rank of this node makes progress: who delays whom, and where they are in their programs.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/observe/watch/hang_report.h"
#include "launcher/observe/watch/observer.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/messages.h"

namespace launcher {

struct HangWatchOptions {
  std::chrono::milliseconds timeout{};  // 0: nothing is reported
  // Jobs of which nothing is known but that they exist are reported, too.
  bool was_asked_for = false;
  std::string host{};
  int stack_signal = 0;
  WatchedRanks ranks{};
  // Which of these processes take part in a job: they, or processes below them, are connected to the store. Asked for
  // all at once, as an answer costs a look at all sockets.
  std::function<std::set<pid_t>(const std::vector<pid_t>& pids)> store_users{};
  // On several nodes: asks them all; report(), go_on() or judge_alone() follows. Null on a single node.
  std::function<void(std::chrono::milliseconds timeout)> ask_others{};
  // Behind the report. `views` are this node's ranks.
  std::function<void(const HangReport& report, const std::vector<RankView>& views)> on_hang{};
  std::function<void()> on_progress{};  // after such a report: they make progress again
};

class HangWatch {
 public:
  // Both must outlive this.
  HangWatch(EventLoop& loop, Messages& messages, HangWatchOptions options);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  const Observer& observer() const { return observer_; }
  // The ranks as a report shows them.
  std::vector<RankView> views(const std::vector<WatchedRank>& ranks) const;

  // The ranks of all nodes make no progress, whether this node has asked or not.
  void report(const HangReport& report);
  // Elsewhere ranks make progress.
  void go_on();
  // Nobody else can be asked.
  void judge_alone();

 private:
  struct Asked {
    pid_t pid = 0;
    std::uint64_t answer = 0;  // the number of the answer that is waited for
    bool takes_signal = false;
    bool is_stopped = false;
  };

  void call_in(std::chrono::milliseconds time, void (HangWatch::*action)());
  void look();
  bool is_reported_at_all();
  void begin_diagnosis();
  void ask_for_stacks();
  void ask(const WatchedRank& rank);
  bool all_have_answered() const;
  void wait_for_stacks();
  void print_report();
  void act();
  std::string stack_of(const WatchedRank& rank) const;

  EventLoop& loop_;
  Messages& messages_;
  HangWatchOptions options_;
  std::chrono::milliseconds interval_;
  Observer observer_;
  std::optional<EventLoop::TimerId> timer_;
  bool is_reported_ = false;  // or asked for
  bool is_printed_ = false;
  EventLoop::Clock::time_point ask_after_{};
  EventLoop::Clock::time_point look_at_store_after_{};
  std::chrono::milliseconds store_pause_;  // until the next such look
  EventLoop::Clock::time_point asked_at_{};
  std::vector<RankView> views_;  // when it was seen that nobody makes progress
  std::uint64_t seen_at_ = 0;    // by the clock of the pages
  HangReport report_;
  std::map<int, Asked> asked_;  // by rank
  std::vector<int> in_order_;   // the ranks whose stacks are shown
};

}  // namespace launcher
