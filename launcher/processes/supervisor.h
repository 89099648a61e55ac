// Runs the ranks of one attempt on this node to their end: watches them, forwards signals, stops all when one fails,
// and leaves no process behind.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/outcome/job_end.h"
#include "launcher/output/rank_streams.h"
#include "launcher/plan/program.h"
#include "launcher/plan/rank_plan.h"
#include "launcher/processes/culprit_wait.h"
#include "launcher/processes/guardian.h"
#include "launcher/processes/leftovers.h"
#include "launcher/processes/spawn.h"
#include "launcher/processes/user_signals.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/messages.h"
#include "launcher/system/signals.h"

namespace launcher {

struct SupervisorOptions {
  Program program{};
  std::vector<std::string> environment{};
  std::chrono::milliseconds grace{30'000};
  bool keep_daemons = false;
  bool may_restart = false;  // another attempt may follow, whose rank 0 needs the terminal's input too
  // Called when this node's ranks begin to be stopped: because the first one failed, or ddprun was told to stop.
  std::function<void(std::string text, int exit_status)> on_stop{};
  // Called when a rank was started, and when it ended.
  std::function<void(const RankPlace& place, pid_t pid)> on_rank_start{};
  std::function<void(const RankEnd& end)> on_rank_end{};
  WorkerStart worker_start{};
};

class Supervisor {
 public:
  // All references must outlive the supervisor. When `guarded.lifeline` ends, the ranks are killed.
  Supervisor(EventLoop& loop, Guarded& guarded, Messages& messages, RankStreams& streams, SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts every rank, or none: throws LaunchError when one cannot be started.
  void start(std::vector<RankPlan> plans);
  // Returns when all ranks and whatever they started are gone.
  JobEnd wait();
  // Stops all ranks because another node failed.
  void stop_because(FailureNotice failure);
  // Stops all ranks because the job has taken too long; `reason` is for the report.
  void stop_late(std::string reason);
  // The processes of the ranks that have not ended, and their ranks.
  std::map<pid_t, int> running_ranks() const;
  // The ranks were asked to stop, or would be if there were any yet.
  bool is_stopping() const { return stopping_; }
  // ddprun was told to stop, perhaps before any rank was started: the signal, else 0.
  int stop_signal() const { return end_.stop_signal; }
  // The same, also when a rank had failed before: then the failure counts, and stop_signal() is 0.
  bool was_told_to_stop() const { return told_to_stop_; }
  // When what does not stop is killed, once the ranks are being stopped.
  std::chrono::steady_clock::time_point kill_time() const { return kill_at_; }
  // After wait(): the user does not want to wait for anything any more.
  bool is_impatient() const { return impatient_; }

 private:
  using Clock = EventLoop::Clock;

  struct Rank {
    RankPlan plan{};
    SpawnedProcess process{};
    bool running = false;
    bool told_to_stop = false;
  };

  void spawn_rank(RankPlan plan);
  void watch_ranks();
  void give_terminal_to_debugged_rank();
  void take_terminal_back();
  void on_signals();
  void on_signal(const signalfd_siginfo& info);
  void on_stop_signal(int number);
  void suspend_guardian(bool suspend);
  void pass_on(int user_signal);
  void send_to(const SignalTargets& targets, int user_signal);
  void on_rank_event(std::size_t index);
  void on_failure(const Rank& rank);
  void watch_for_culprit();
  bool is_somebody_ending() const;
  void stop_after_failure();
  void record_end(Rank& rank, const siginfo_t& info);
  std::string why_not_executed(const RankPlan& plan, int error) const;
  void reap_children();
  void on_guardian_gone();

  void stop_ranks(int signal_number);
  void begin_grace();
  void kill_everything();
  void begin_sweep();
  void sweep();
  void signal_group(const Rank& rank, int signal_number) const;
  void give_up();
  void say_what_we_wait_for();

  EventLoop& loop_;
  Guarded& guarded_;
  Messages& messages_;
  RankStreams& streams_;
  SupervisorOptions options_;
  Spawner spawner_;
  std::vector<Rank> ranks_;
  std::unordered_map<pid_t, std::size_t> rank_of_pid_;
  std::size_t running_ = 0;
  bool done_ = false;
  bool impatient_ = false;
  pid_t terminal_group_ = 0;  // the foreground group before a debugged rank became it

  JobEnd end_;
  std::set<int> forwarded_;  // stop signals that the ranks got
  std::set<int> unheard_;    // user signals that some rank had no handler for
  bool told_to_stop_ = false;
  bool guardian_suspended_ = false;
  bool guardian_gone_ = false;
  CulpritWait culprit_;
  Leftovers leftovers_;
  bool stopping_ = false;
  bool killing_ = false;
  bool sweeping_ = false;
  Clock::time_point kill_at_{};
  std::optional<Clock::time_point> first_interrupt_;
  Clock::duration sweep_pause_{};  // until what was left behind is looked for again
  std::vector<EventLoop::TimerId> timers_;
};

}  // namespace launcher
