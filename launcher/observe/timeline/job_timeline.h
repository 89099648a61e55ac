// The timeline of a job in one launcher: reads the records of this node's ranks, and writes them to the file or sends
// them to the node that writes it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/timeline/collector.h"
#include "launcher/observe/timeline/node_stream.h"
#include "launcher/observe/timeline/open_events.h"
#include "launcher/observe/timeline/timeline_writer.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/network/side_channel.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/options.h"

namespace launcher {

class JobTimeline {
 public:
  // References must outlive this. Opens the file if it is already known that this node writes it. Throws LaunchError
  // when it cannot be written.
  JobTimeline(EventLoop& loop, Messages& messages, const Options& options, std::shared_ptr<SideChannel> channel);
  ~JobTimeline();
  JobTimeline(const JobTimeline&) = delete;
  JobTimeline& operator=(const JobTimeline&) = delete;

  // Call it when the ranks of an attempt have been started on this node, after `restart` restarts.
  void begin_attempt(const std::vector<WatchedRank>& ranks, int node, int restart);
  // Call it when the ranks have ended: reads their last records. If another node writes the file, waits until the
  // records have been sent. If this node writes it, await_others() waits until the other nodes have sent theirs. Both
  // wait for some seconds at most, and until `gives_up` returns true.
  void end_attempt(const std::function<bool()>& gives_up);
  void await_others(const std::function<bool()>& gives_up);

  // Executes "start FILE", "start" or "stop" at any time; the answer is one line. While it is kStopping, the caller
  // must ask "stopped" again: the records are being written to the file, and the event loop does not wait for that.
  static constexpr std::string_view kStopping = "stopping";
  std::string command(const std::string& words);

 private:
  enum class Role : std::uint8_t { kNone, kWritesFile, kSendsRecords };

  bool is_sent() const;
  bool has_all() const;
  void run_until(const std::function<bool()>& is_done);
  void begin(Role role, const std::string& file);
  void add_ranks();
  std::string ranks_without_memory() const;
  void apply(const ddp::detail::RecordingPlan& plan);
  void send_open_events();
  void notify_others();
  std::string start(const std::string& file);
  bool can_append_to(const std::string& target);
  std::string stop();
  std::string stopped() const;
  void on_member_bytes(int node, std::optional<ClockDifference> clock, std::string_view bytes);
  void on_coordinator_bytes(std::string_view bytes);
  void send_some();
  void print_problem();
  void print_why_empty();
  void poll();

  EventLoop& loop_;
  Messages& messages_;
  const Options& options_;
  std::shared_ptr<SideChannel> channel_;
  ddp::detail::RecordingPlan plan_;
  Role role_ = Role::kNone;
  int node_ = 0;
  std::vector<WatchedRank> ranks_;  // the ranks of this attempt
  OpenEvents open_events_;
  int restart_ = 0;
  bool has_reported_empty_ = false;
  std::uint64_t max_steps_ = 0;  // the largest number of steps of a rank
  std::string partial_orders_;   // from the coordinator; may be incomplete
  OwnFiles own_files_;
  std::unique_ptr<TimelineWriter> writer_;
  std::unique_ptr<NodeStreamWriter> stream_;
  std::unique_ptr<ddp::detail::Collector> collector_;  // declared after the objects that its thread uses
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
