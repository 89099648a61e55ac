// The processes of the ranks of one attempt on this node: starts them, signals them, and reads how they ended.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/local/output/rank_streams.h"
#include "launcher/local/processes/orphans.h"
#include "launcher/local/processes/spawn.h"
#include "launcher/observe/timeline/rank_ring.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/program.h"
#include "launcher/plan/rank_plan.h"

namespace launcher {

struct ExecLimits {
  std::size_t total_bytes_limit;   // limit for arguments and environment together, with their terminating zeros and the
                                   // pointers to them
  std::size_t string_bytes_limit;  // limit for one argument or variable, with its terminating zero
};

// The kernel's limits when pages have `page_bytes` bytes and the stack is limited to `stack_bytes` (ulimit -s). Pure.
ExecLimits exec_limits(std::size_t page_bytes, std::size_t stack_bytes);

ExecLimits exec_limits();

// Returns one line: that execve failed with `error`, and what to check. `arguments` and `environment` are what execve
// received. `cause` is a reason that was found in the file's own bytes, or "". Pure.
std::string exec_failure_text(const std::string& file, int error, std::span<const std::string> arguments,
                              std::span<const std::string> environment, const ExecLimits& limits,
                              const std::string& cause = {});

// The null-terminated arrays for execve. The texts are stored elsewhere.
struct ExecArguments {
  std::vector<char*> arguments{};
  std::vector<char*> shell_arguments{};
  std::vector<char*> environment{};
};

struct Worker {
  RankPlan plan{};
  ExecArguments exec{};
  SpawnedProcess process{};
  RankPage page{};
  RankRing timeline;
  bool running = false;
  bool stop_requested = false;
};

struct WorkerGroupOptions {
  Program program{};
  std::vector<std::string> environment{};
  WorkerStart start{};
};

class WorkerGroup {
 public:
  // Calls `on_event` when the worker with this index may have ended. References must outlive the group.
  WorkerGroup(EventLoop& loop, RankStreams& streams, WorkerGroupOptions options,
              std::function<void(std::size_t index)> on_event);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Starts a process for every worker, or none: throws LaunchError when one cannot be started. All of them wait at a
  // gate.
  void fork(std::vector<RankPlan> plans);
  void open_gate() { spawner_.open_gate(); }

  const std::vector<Worker>& workers() const { return workers_; }
  const Worker& operator[](std::size_t index) const { return workers_[index]; }
  std::size_t running() const { return running_; }
  std::map<pid_t, int> running_ranks() const;
  // Returns the index of the worker with this process number, until it is reaped.
  std::optional<std::size_t> find(pid_t pid) const;
  // True when a running worker is about to fail: it is exiting, or has written its error file.
  bool is_any_ending() const;
  std::optional<std::size_t> in_terminal() const;

  // Returns how a worker ended; nothing while it runs and after it is reaped.
  std::optional<RankEnd> end_of(std::size_t index);
  // After this call the process number may belong to another process.
  void reap(std::size_t index);

  // Signals the process group of each running worker.
  void signal_all(int signal_number) const;
  // Signals one process group, whose leader may have ended but is not reaped. Processes that it leaves running need not
  // be asked again.
  void ask_to_stop(std::size_t index, int signal_number, Orphans& orphans) const;
  void kill(std::size_t index) const;
  // Asks all running workers to stop, and records that they were asked.
  void ask_all_to_stop(int signal_number, Orphans& orphans);
  void kill_all();

 private:
  void start_worker(RankPlan plan);
  void fill_arguments(Worker& worker) const;
  void watch_workers();
  std::string why_not_executed(const RankPlan& plan, int error) const;

  EventLoop& loop_;
  RankStreams& streams_;
  WorkerGroupOptions options_;
  std::function<void(std::size_t index)> on_event_;
  Spawner spawner_;
  std::vector<Worker> workers_;
  std::unordered_map<pid_t, std::size_t> index_of_;
  std::size_t running_ = 0;
};

// Returns all ranks; `end` has how those that have ended did so.
std::vector<WatchedRank> watched_ranks(const WorkerGroup& workers, const JobEnd& end);

}  // namespace launcher
