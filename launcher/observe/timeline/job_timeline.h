// The timeline of a job, as this node's launcher sees it: reads what its ranks record, and writes it to the file, or
// sends it to the node that does.
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
  // References must outlive this. Opens the file where it is known that this node writes it; throws LaunchError when it
  // cannot be written.
  JobTimeline(EventLoop& loop, Messages& messages, const Options& options, std::shared_ptr<SideChannel> channel);
  ~JobTimeline();
  JobTimeline(const JobTimeline&) = delete;
  JobTimeline& operator=(const JobTimeline&) = delete;

  // The ranks of an attempt have been started on this node, after `restart` restarts.
  void begin_attempt(const std::vector<WatchedRank>& ranks, int node, int restart);
  // They are gone: reads what they have left. Where another node writes the file, stays until that has been sent, and
  // await_others() where this one does until the others have sent theirs; for some seconds at most, and not longer than
  // until `gives_up`.
  void end_attempt(const std::function<bool()>& gives_up);
  void await_others(const std::function<bool()>& gives_up);

  // "start FILE", "start" or "stop", by the user at any time; the answer is one line. While it is kStopping, "stopped"
  // is to be asked: what was recorded is on its way to the file, for which the event loop does not wait.
  static constexpr std::string_view kStopping = "stopping";
  std::string command(const std::string& words);

 private:
  enum class Role : std::uint8_t { kNone, kWrites, kSends };

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
  bool continues_in(const std::string& target);
  std::string stop();
  std::string stopped() const;
  void on_member(int node, std::optional<ClockDifference> clock, std::string_view bytes);
  void on_coordinator(std::string_view bytes);
  void send_some();
  void print_problem();
  void print_why_empty();
  void look();

  EventLoop& loop_;
  Messages& messages_;
  const Options& options_;
  std::shared_ptr<SideChannel> channel_;
  ddp::detail::RecordingPlan plan_;
  Role role_ = Role::kNone;
  int node_ = 0;
  std::vector<WatchedRank> ranks_;  // of this attempt
  OpenEvents open_events_;
  int restart_ = 0;
  bool has_said_empty_ = false;
  std::uint64_t most_steps_ = 0;  // that a rank has had
  std::string orders_;            // of the coordinator, not whole yet
  OwnFiles own_files_;
  std::unique_ptr<TimelineWriter> writer_;
  std::unique_ptr<NodeStreamWriter> stream_;
  std::unique_ptr<ddp::detail::Collector> collector_;  // after what its thread uses
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
