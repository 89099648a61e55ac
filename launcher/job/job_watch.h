// Watches a running job: reports hangs, answers status queries, and records its last collectives.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/local/processes/supervisor.h"
#include "launcher/local/report/event_log.h"
#include "launcher/observe/gathering/hang_gathering.h"
#include "launcher/observe/straggler/straggler_watch.h"
#include "launcher/observe/timeline/job_timeline.h"
#include "launcher/observe/watch/hang_command.h"
#include "launcher/observe/watch/hang_watch.h"
#include "launcher/observe/watch/metrics_server.h"
#include "launcher/observe/watch/stack_answers.h"
#include "launcher/observe/watch/status_document.h"
#include "launcher/observe/watch/status_server.h"
#include "launcher/os/machine/gpu_monitor.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/log_layout.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher {

struct WatchedPlace {
  int node = 0;  // this node's number
  int nodes = 1;
  int world_size = 1;
  std::function<void(int to, std::string text)>
      send_text{};                                   // sends a text to other nodes, see Rendezvous::send_text()
  std::function<std::string(int local_rank)> gpu{};  // the rank's entry of CUDA_VISIBLE_DEVICES
};

class JobWatch {
 public:
  // All references must outlive this. Throws LaunchError when the address for metrics cannot be bound or the file of
  // the timeline cannot be opened.
  JobWatch(EventLoop& loop, Messages& messages, EventLog& events, const Options& options, const LogLayout& layout,
           const std::string& run_id, pid_t guardian, std::shared_ptr<SideChannel> channel);

  // Called when the ranks of an attempt have been started. `supervisor` must outlive the attempt. `ports` are the ports
  // of the attempt's store.
  void begin_attempt(Supervisor& supervisor, std::vector<std::uint16_t> ports, int attempt, WatchedPlace place);
  void rank_ended();
  // Handles a message from the JobWatch of another node.
  void on_message(int from, const std::string& text);
  // Called when all ranks of this node have ended. Other nodes may still need this one.
  void ranks_ended();
  // Called when the ranks' processes are gone. When a rank failed, writes the flight records and adds to `end` where
  // the ranks' calls differ.
  void end_attempt(JobEnd& end);
  // Called when the job waits for `backoff` before its restart.
  void waits_for_restart(std::chrono::milliseconds backoff) {
    job_.restart_time = std::chrono::system_clock::now() + backoff;
  }

 private:
  std::set<pid_t> store_users(const std::vector<pid_t>& pids) const;
  void watch_for_hangs();
  void watch_for_stragglers();
  void on_hang(const HangReport& report, const std::vector<RankView>& views);
  void end_hanging_job();
  void on_progress();
  void on_straggler(const StragglerChange& change);
  std::optional<GpuState> gpu_of(int rank) const;
  void keep_flight_records(const std::vector<RankView>& views);
  nlohmann::ordered_json document() const;
  std::string answer(const std::string& request);

  EventLoop& loop_;
  Messages& messages_;
  EventLog& events_;
  const Options& options_;
  const LogLayout& layout_;
  JobView job_;
  bool has_record_ = false;           // the record of the hang that ends the attempt was written
  bool has_reported_record_ = false;  // the message about this attempt's records was printed
  Supervisor* supervisor_ = nullptr;  // null between attempts
  std::vector<std::uint16_t> ports_;
  WatchedPlace place_;
  std::optional<GpuMonitor> gpus_;
  std::optional<HangGathering> gathering_;
  std::optional<SampleExchange> samples_;
  std::optional<HangWatch> hang_watch_;
  HangCommand hang_command_{loop_, messages_};
  StackAnswers stack_answers_;
  JobTimeline timeline_;
  std::optional<StragglerWatch> straggler_watch_;
  std::optional<StatusServer> status_;
  std::optional<MetricsServer> metrics_;
};

}  // namespace launcher
