#include "launcher/observe/timeline/job_timeline.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "launcher/observe/timeline/rank_ring.h"
#include "launcher/observe/watch/collective_text.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using ddp::detail::RecordingMode;

// How often recorded events are sent, and errors are checked.
constexpr auto kTimelineInterval = 50ms;
// How long the last records may take to reach the node that writes the file.
constexpr auto kSendTimeout = 5s;
constexpr std::size_t kMaxSendBytes = std::size_t{64} << 10;

}  // namespace

JobTimeline::JobTimeline(EventLoop& loop, Messages& messages, const Options& options,
                         std::shared_ptr<SideChannel> channel)
    : loop_(loop),
      messages_(messages),
      options_(options),
      channel_(std::move(channel)),
      plan_(recording_plan(options)) {
  channel_->on_member_bytes = [this](int node, auto clock, std::string_view bytes) {
    on_member_bytes(node, clock, bytes);
  };
  channel_->on_coordinator_bytes = [this](std::string_view bytes) { on_coordinator_bytes(bytes); };
  // Other nodes learn their number only later.
  const bool is_first = options.nnodes == 1 || (options.rdzv_backend != "c10d" && options.node_rank == 0);
  if (options.timeline_file.empty() || !is_first || options.elastic.is_on()) return;
  try {
    begin(Role::kWritesFile, options.timeline_file);
  } catch (const std::runtime_error& error) {
    throw LaunchError("--timeline " + options.timeline_file + ": " + error.what());
  }
}

JobTimeline::~JobTimeline() {
  channel_->on_member_bytes = nullptr;
  channel_->on_coordinator_bytes = nullptr;
  collector_.reset();
  if (!writer_) return;
  writer_->finish();
  print_problem();
}

void JobTimeline::begin(Role role, const std::string& file) {
  collector_.reset();
  stream_.reset();
  const auto rests = writer_ ? writer_->finish() : TimelineWriter::PartialMessages{};
  writer_.reset();
  role_ = Role::kNone;
  if (role == Role::kWritesFile) {
    writer_ = std::make_unique<TimelineWriter>(file, rests);
    own_files_.add(writer_->identity());
    collector_ = std::make_unique<ddp::detail::Collector>(writer_->sink(), [this] { writer_->after_pass(); });
  } else {
    stream_ = std::make_unique<NodeStreamWriter>();
    collector_ = std::make_unique<ddp::detail::Collector>(*stream_, [] {});
  }
  role_ = role;
  if (!timer_.is_running()) timer_.start_in(kTimelineInterval, [this] { poll(); });
}

void JobTimeline::begin_attempt(const std::vector<WatchedRank>& ranks, int node, int restart) {
  ranks_ = ranks;
  node_ = node;
  restart_ = restart;
  if (writer_) writer_->forget_ended_nodes();
  if (plan_.mode == RecordingMode::kOff) return;
  if (role_ == Role::kNone || (role_ == Role::kSendsRecords && !channel_->has_coordinator())) {
    const bool is_sender = !channel_->to_members && channel_->has_coordinator();
    const bool is_alone = !is_sender && !channel_->to_members && options_.nnodes > 1;
    const std::string& file = options_.timeline_file;
    try {
      begin(is_sender ? Role::kSendsRecords : Role::kWritesFile, is_alone ? file_of_node(file, node_, restart_) : file);
    } catch (const std::runtime_error& error) {
      messages_.print("no timeline is written: " + file + ": " + error.what());
      plan_.mode = RecordingMode::kOff;
    }
  }
  apply(plan_);
  add_ranks();
  if (writer_) notify_others();  // the other nodes may have been started without --timeline
}

void JobTimeline::add_ranks() {
  if (!collector_) return;
  for (const WatchedRank& rank : ranks_) {
    if (!rank.timeline) continue;
    std::string name = "rank " + std::to_string(rank.rank) + " on " + host_name();
    if (restart_ > 0) name += ", restart " + std::to_string(restart_);
    collector_->add(rank.rank, std::move(name), rank.timeline);
  }
  const std::string without = ranks_without_memory();
  if (without.empty() || std::exchange(has_reported_empty_, true)) return;
  messages_.print(without);
}

std::string JobTimeline::ranks_without_memory() const {
  std::vector<int> ranks;
  for (const WatchedRank& rank : ranks_) {
    if (!rank.timeline) ranks.push_back(rank.rank);
  }
  return ranks.empty() ? ""
                       : "nothing is recorded for " + rank_ranges(ranks) +
                             ": there is not enough shared memory (each rank needs up to 17 MB; "
                             "ulimit -f and ulimit -v limit it)";
}

void JobTimeline::apply(const ddp::detail::RecordingPlan& plan) {
  for (const WatchedRank& rank : ranks_) {
    if (rank.timeline) ddp::detail::set_plan(*rank.timeline, plan, /*is_running=*/true);
  }
}

void JobTimeline::end_attempt(const std::function<bool()>& gives_up) {
  send_open_events();
  for (const WatchedRank& rank : ranks_) {
    if (rank.timeline) max_steps_ = std::max(max_steps_, rank.timeline->step.load(std::memory_order_relaxed));
  }
  if (collector_) collector_->end_all();
  if (stream_) stream_->end_node();
  ranks_.clear();
  run_until([&] { return is_sent() || gives_up(); });
}

// Printed once for a job, because its next attempt may record something.
void JobTimeline::print_why_empty() {
  if (!writer_ || plan_.mode == RecordingMode::kOff || writer_->events() > 0 ||
      std::exchange(has_reported_empty_, true)) {
    return;
  }
  const std::string why = plan_.mode == RecordingMode::kSteps && max_steps_ > 0
                              ? "no rank reached step " + std::to_string(plan_.first) + "; the ranks ran " +
                                    std::to_string(max_steps_) + " steps"
                              : "no rank recorded anything; only programs that use ddprun's library do";
  messages_.print("the timeline in " + writer_->path() + " is empty: " + why);
}

void JobTimeline::await_others(const std::function<bool()>& gives_up) {
  run_until([&] { return has_all() || gives_up(); });
  if (collector_) print_why_empty();
}

void JobTimeline::run_until(const std::function<bool()>& is_done) {
  const auto deadline = EventLoop::Clock::now() + kSendTimeout;
  while (!is_done() && EventLoop::Clock::now() < deadline) loop_.run_once();  // the timer wakes it
}

bool JobTimeline::is_sent() const {
  return !stream_ || !channel_->has_coordinator() || (stream_->is_empty() && channel_->is_sent());
}

bool JobTimeline::has_all() const {
  const bool expects = role_ == Role::kWritesFile && plan_.mode != RecordingMode::kOff && channel_->to_members;
  return !expects || writer_->ended_nodes() >= channel_->members();
}

void JobTimeline::on_member_bytes(int node, std::optional<ClockDifference> clock, std::string_view bytes) {
  if (!writer_) return;
  collector_->post(
      [writer = writer_.get(), node, clock, bytes = std::string(bytes)] { writer->take(node, clock, bytes); });
}

void JobTimeline::on_coordinator_bytes(std::string_view bytes) {
  partial_orders_ += bytes;
  const auto plan = take_plan(partial_orders_);
  if (!plan || channel_->to_members) return;
  const bool continues = plan_.mode == RecordingMode::kOff && plan->mode != RecordingMode::kOff && stream_;
  plan_ = *plan;
  // The file may be a new one, so the ranks must be announced to it again.
  if (continues) collector_->end_all();
  const bool begins = role_ == Role::kNone && plan_.mode != RecordingMode::kOff;
  if (begins) begin(Role::kSendsRecords, "");
  if (begins || continues) add_ranks();
  apply(plan_);
  if (plan_.mode == RecordingMode::kOn) open_events_.note(ranks_);
  if (stream_ && plan_.mode == RecordingMode::kOff) {
    send_open_events();
    collector_->pause_all([] {});
  }
}

void JobTimeline::send_open_events() {
  if (!collector_) return;
  for (auto& [rank, words] : open_events_.take(ranks_)) collector_->add_records(rank, std::move(words));
}

void JobTimeline::notify_others() {
  if (channel_->to_members) channel_->to_members(to_bytes(plan_));
}

void JobTimeline::send_some() {
  while (channel_->has_room()) {
    const std::string bytes = stream_->take_bytes(kMaxSendBytes);
    if (bytes.empty()) return;
    channel_->send(bytes);
  }
}

void JobTimeline::print_problem() {
  const std::string problem = writer_->take_problem();
  if (problem.empty()) return;
  messages_.print("the timeline in " + writer_->path() + " has stopped: " + problem);
  plan_.mode = RecordingMode::kOff;
  apply(plan_);
  notify_others();
}

void JobTimeline::poll() {
  if (stream_) send_some();
  if (writer_) print_problem();
  // The collector's thread sleeps while it has no rank to read.
  if (writer_ && writer_->holds_back()) collector_->post([] {});
  timer_.start_in(kTimelineInterval, [this] { poll(); });
}

std::string JobTimeline::command(const std::string& words) {
  if (words == "stop") return stop();
  if (words == "stopped") return stopped();
  if (words == "start") return start("");
  if (words.starts_with("start ")) return start(words.substr(6));
  return "error: expected start or stop";
}

std::string JobTimeline::start(const std::string& file) {
  const bool is_coordinator = channel_->to_members != nullptr;
  if (role_ == Role::kSendsRecords || (channel_->has_coordinator() && !is_coordinator)) {
    return "error: the node that coordinates the job writes the timeline of all nodes; run this command there";
  }
  const bool is_alone = options_.nnodes > 1 && !is_coordinator;
  const std::string own = is_alone && !options_.timeline_file.empty()
                              ? file_of_node(options_.timeline_file, node_, restart_)
                              : options_.timeline_file;
  std::string target = !file.empty() ? file : writer_ ? writer_->path() : own;
  if (target.empty()) return "error: the job was started without --timeline: name a file with -o";
  target = whole_path(target);
  if (!can_append_to(target)) {
    if (writer_ && plan_.mode != RecordingMode::kOff) {
      return "error: a timeline is being written to " + whole_path(writer_->path()) + "; stop it first";
    }
    if (own_files_.has(target)) return "error: " + target + " has an earlier recording of this job; name another file";
    try {
      begin(Role::kWritesFile, target);
    } catch (const std::runtime_error& error) {
      return "error: " + target + ": " + error.what();
    }
    add_ranks();
  }
  const bool was_off = plan_.mode == RecordingMode::kOff;
  plan_ = {.mode = RecordingMode::kOn};
  apply(plan_);
  if (was_off) open_events_.note(ranks_);
  notify_others();
  const std::string without = ranks_without_memory();
  return "recording to " + target + (without.empty() ? "" : "; " + without);
}

// Whether recording continues in the file that was written last. The file's content must be unchanged since then.
bool JobTimeline::can_append_to(const std::string& target) {
  if (!writer_ || whole_path(writer_->path()) != target || !writer_->problem().empty()) return false;
  bool continues = plan_.mode != RecordingMode::kOff;
  if (!continues) collector_->run_now([&] { continues = writer_->resume(); });
  return continues;
}

std::string JobTimeline::stop() {
  if (writer_ && !writer_->problem().empty()) return stopped();
  if (!writer_ || plan_.mode == RecordingMode::kOff) return "error: no timeline is being recorded";
  plan_ = {.mode = RecordingMode::kOff};
  apply(plan_);
  notify_others();
  send_open_events();
  writer_->clear_suspended();
  collector_->pause_all([writer = writer_.get()] { writer->suspend(); });
  return std::string(kStopping);
}

std::string JobTimeline::stopped() const {
  if (!writer_) return "error: no timeline is being recorded";
  const std::string path = whole_path(writer_->path());
  if (const std::string problem = writer_->problem(); !problem.empty()) {
    return "error: the timeline in " + path + " has ended: " + problem;
  }
  if (!writer_->is_suspended()) return std::string(kStopping);
  return "stopped; " + whole_path(writer_->place()) + " has " + std::to_string(writer_->events()) + " events" +
         (options_.nnodes > 1 ? " so far: records of other nodes may still arrive" : "");
}

}  // namespace launcher
