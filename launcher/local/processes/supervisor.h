// Runs the ranks of one attempt on this node to their end: watches them, forwards signals, stops all when one fails,
// and leaves no process behind.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/local/output/rank_streams.h"
#include "launcher/local/processes/guardian.h"
#include "launcher/local/processes/orphans.h"
#include "launcher/local/processes/phase.h"
#include "launcher/local/processes/terminal_input.h"
#include "launcher/local/processes/user_signals.h"
#include "launcher/local/processes/worker_group.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/signals.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_plan.h"

namespace launcher {

class RootCauseWait {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Records that a rank has failed as a consequence of another failure. `is_ambiguous`: its message may also mean a
  // failure of the rank itself.
  void add_victim(Time now, bool is_ambiguous);
  bool has_begun() const { return first_.has_value(); }
  // Whether to continue to wait. `is_somebody_ending`: a running rank is about to fail.
  bool continues(Time now, bool is_somebody_ending) const;

 private:
  std::optional<Time> first_;
  Time last_{};
  bool are_all_ambiguous_ = true;  // true when all victims were ambiguous
};

struct SupervisorOptions {
  WorkerGroupOptions workers{};
  const Options* options = nullptr;  // must outlive the supervisor
  bool may_restart = false;          // another attempt may follow, whose rank 0 needs the terminal's input too
  // All callbacks must be set. on_stop is called when this node's ranks begin to be stopped for another reason than the
  // failure of a rank, such as a request to stop. on_failure is called when a rank failed first; `first` is its index
  // in the ranks of `end`.
  std::function<void(FailureNotice notice)> on_stop{};
  std::function<void(const JobEnd& end, std::size_t first)> on_failure{};
  std::function<void(const RankPlace& place, pid_t pid)> on_rank_start{};
  std::function<void(const RankEnd& end)> on_rank_end{};
};

class Supervisor {
 public:
  // All references must outlive the supervisor. When `context.guardian_pipe` ends, the ranks are killed.
  Supervisor(EventLoop& loop, SupervisorContext& context, Messages& messages, RankStreams& streams,
             SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts every rank, or none: throws LaunchError when one cannot be started. If ddprun is asked to stop during that,
  // the ranks are asked to stop at once.
  void start(std::vector<RankPlan> plans);
  // Returns when all ranks and all processes that they started have ended.
  JobEnd wait();
  // True when a running rank is about to fail.
  bool is_any_ending() const { return workers_.is_any_ending(); }
  // Stops all ranks because another node failed.
  void stop_because(FailureNotice failure);
  // Stops all ranks because the job has taken too long. `reason` is for the report. `restarts`: the job may be
  // restarted, as after a failure.
  void stop_on_timeout(std::string reason, bool restarts = false);
  std::vector<WatchedRank> all_ranks() const { return launcher::watched_ranks(workers_, end_); }
  // The ranks, while they are expected to make progress; otherwise empty.
  std::vector<WatchedRank> watched_ranks() const {
    return is_stopping() || guardian_ == Guardian::kSuspended ? std::vector<WatchedRank>() : all_ranks();
  }
  // True when a rank has not ended. This does not check each rank, as it is called at the end of every rank.
  bool has_running_ranks() const { return end_.ranks.size() < workers_.workers().size(); }
  // The processes of the running ranks, and their ranks.
  std::map<pid_t, int> running_ranks() const { return workers_.running_ranks(); }
  // True when the ranks were asked to stop, or will be asked as soon as they are started.
  bool is_stopping() const { return phase_ != Phase::kRunning; }
  // The signal with which ddprun was asked to stop, perhaps before a rank was started; 0 if there was none.
  int stop_signal() const { return end_.stop_signal; }
  // True when ddprun was asked to stop, also after a rank had failed. In that case the failure counts, and
  // stop_signal() is 0.
  bool was_stop_requested() const { return !stop_signals_.empty(); }
  // When the remaining processes of a job that is being stopped are killed.
  std::chrono::steady_clock::time_point kill_time() const { return kill_at_; }
  // For calls after wait(): the user has asked a second time to stop, or the guardian was killed. Then ddprun waits for
  // nothing more.
  bool must_end_now() const { return phase_ == Phase::kDismissed || guardian_ == Guardian::kGone; }

 private:
  using Clock = EventLoop::Clock;

  enum class Guardian : std::uint8_t { kRuns, kSuspended, kGone };

  void on_signals();
  void on_signal(const signalfd_siginfo& info);
  void on_stop_signal(int number);
  bool is_interrupt_again(int number);
  void suspend_guardian(bool suspend);
  void on_guardian_gone();

  void on_worker_event(std::size_t index);
  void on_failure(std::size_t index);
  void watch_for_root_cause();
  void stop_after_failure();
  void reap_children();

  void advance(PhaseEvent event);
  void begin_grace();
  void stop_ranks(int signal_number);
  void kill_everything();
  void end_orphans();
  void give_up();
  void print_running_ranks();
  void call_after(Clock::duration time, std::function<void()> action);

  EventLoop& loop_;
  SupervisorContext& context_;
  Messages& messages_;
  RankStreams& streams_;
  SupervisorOptions options_;
  WorkerGroup workers_;
  Orphans orphans_;
  Phase phase_ = Phase::kRunning;
  OrphanSweep sweep_;
  UserSignalForwarder user_signals_;
  ForegroundTerminal terminal_;
  RootCauseWait root_cause_;
  Guardian guardian_ = Guardian::kRuns;
  JobEnd end_;
  std::set<int> stop_signals_;  // the signals that ddprun received; each was forwarded to the ranks once
  Clock::time_point kill_at_{};
  std::optional<Clock::time_point> first_interrupt_;
  std::vector<EventLoop::TimerId> timers_;
};

}  // namespace launcher
