// A job on this node while it runs: its attempts, each from a fresh store to the report, and its exit status.
#pragma once

#include <sys/resource.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/job_watch.h"
#include "launcher/local/output/rank_streams.h"
#include "launcher/local/processes/file_timer.h"
#include "launcher/local/processes/guardian.h"
#include "launcher/local/processes/start_watch.h"
#include "launcher/local/processes/supervisor.h"
#include "launcher/local/report/event_log.h"
#include "launcher/local/report/failure_hints.h"
#include "launcher/nodes/rendezvous/ranks_store.h"
#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/os/machine/usable_cpus.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/open_files.h"
#include "launcher/plan/option_sources.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/program.h"
#include "launcher/plan/resources.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

struct JobRequest {
  Options options;
  Program program;
  Resources resources;
  std::string debugger;      // of --debug; empty: none
  std::string error_folder;  // for the workers' error files; empty: they are among the log files
};

// Runs one job on this node, from the store to the report. This is the work of the supervisor. Returns ddprun's exit
// status. Throws LaunchError when the job cannot be started.
int supervise_job(const JobRequest& request, EventLog& events, SupervisorContext context);

class JobRun {
 public:
  JobRun(const JobRequest& request, EventLog& events, SupervisorContext context);
  int run();

 private:
  RendezvousSettings rendezvous_settings();
  void print_threads();
  void start_supervisor();
  bool join_nodes();
  void find_store();
  bool watches(std::uint16_t peer_port) { return start_watch_ && start_watch_->connected(peer_port); }
  void start_ranks();
  void watch_start();
  void on_rank_end(const RankEnd& end) {
    events_.rank_ended(end, attempt_);
    watch_.rank_ended();
  }
  // Why ddprun itself sent the rank a signal before the job was stopped; empty if ddprun did not.
  std::string signal_reason(const RankEnd& rank) const { return file_timer_ ? file_timer_->reason_for(rank.pid) : ""; }
  void announce_failure(const JobEnd& end, std::size_t first);
  void abort_job(const LaunchError& error);
  void leave(JobEnd& end);
  std::optional<JobEnd> run_attempt();
  bool has_restarts_left() const;
  bool should_restart(const JobEnd& end) const;
  bool wait_before_restart();
  void print_restart();
  void print_why_not_restarted(const JobEnd& end);
  void pass_on_error(const JobEnd& end);
  int status_without_ranks() const;
  bool is_over() const { return supervisor_->must_end_now() || timed_out_at_.has_value(); }
  // True when another node of the job prints the text that is equal on all nodes: one ddprun shows the output of all
  // nodes.
  bool other_node_prints() const { return options_.part_descriptor && options_.node_rank > 0; }
  void stop_on_timeout(const std::string& why) {
    supervisor_->stop_on_timeout(why + option_sources(why, options_.variables));
  }
  void on_timeout();
  void finish_output(const JobEnd* end);
  void hand_over_coordination();
  int run_attempts();
  void run_until(EventLoop::Clock::time_point deadline, const std::function<bool()>& is_done);

  const JobRequest& request_;
  const Options& options_;
  EventLog& events_;
  SupervisorContext context_;
  rlimit open_files_;
  int cpus_;
  EventLoop loop_;
  std::vector<std::string> inherited_;
  std::string random_id_ = random_id();
  RankStreams streams_;
  std::unique_ptr<FileTimer> file_timer_;  // null: no file timer is configured
  JobEnvironment environment_;
  int attempt_ = 0;
  std::shared_ptr<SideChannel> side_channel_ = std::make_shared<SideChannel>();
  std::unique_ptr<Rendezvous> rendezvous_;
  std::optional<RanksStore> ranks_store_;  // of this attempt
  std::optional<Supervisor> supervisor_;
  std::optional<StartWatch> start_watch_;
  JobWatch watch_;
  std::optional<int> announced_;                              // the rank whose failure was reported to the other nodes
  std::optional<EventLoop::Clock::time_point> timed_out_at_;  // when --timeout expired
  bool gave_up_on_reader_ = false;
  std::optional<int> join_status_;  // set when the nodes could not meet
  std::optional<long> out_of_memory_kills_ = out_of_memory_kills();

  Messages& messages() { return streams_.messages(); }
};

}  // namespace launcher
