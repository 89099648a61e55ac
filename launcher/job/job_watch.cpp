#include "launcher/job/job_watch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "launcher/local/processes/socket_owners.h"
#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/flight_record.h"
#include "launcher/observe/watch/group_calls.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/json_text.h"
#include "launcher/plan/outcome/job_status.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

}  // namespace

JobWatch::JobWatch(EventLoop& loop, Messages& messages, EventLog& events, const Options& options,
                   const LogLayout& layout, const std::string& run_id, pid_t guardian,
                   std::shared_ptr<SideChannel> channel)
    : loop_(loop),
      messages_(messages),
      events_(events),
      options_(options),
      layout_(layout),
      job_{.job = run_id,
           .pid = guardian,
           .host = host_name(),
           .program = options.program,
           .start = std::chrono::system_clock::now()},
      timeline_(loop, messages, options, std::move(channel)) {
  status_.emplace(loop, job_.pid, [this](const std::string& request) { return answer(request); });
  if (!status_->problem().empty()) messages_.print("ddprun status cannot show this job: " + status_->problem());
  if (options_.metrics_port) {
    metrics_.emplace(loop, MetricsAddress{options_.metrics_host, *options_.metrics_port},
                     [this](MetricsFormat format) { return metrics_text(document(), format); });
    job_.metrics = metrics_->url();
    if (*options_.metrics_port == 0) messages_.print("metrics are served at " + job_.metrics);
  }
}

void JobWatch::begin_attempt(Supervisor& supervisor, std::vector<std::uint16_t> ports, int attempt,
                             WatchedPlace place) {
  supervisor_ = &supervisor;
  has_record_ = has_reported_record_ = false;
  ports_ = std::move(ports);
  job_.attempt = attempt;
  job_.restart_time.reset();
  job_.world_size = place.world_size;
  place_ = std::move(place);
  if (supervisor.has_running_ranks()) gpus_.emplace(loop_);
  watch_for_hangs();
  watch_for_stragglers();
  timeline_.begin_attempt(supervisor.all_ranks(), place_.node, attempt);
}

void JobWatch::watch_for_hangs() {
  HangWatchOptions options{.timeout = options_.hang_timeout,
                           .was_asked_for = options_.has_hang_timeout,
                           .host = job_.host,
                           .stack_signal = stack_signal(),
                           .ranks = [this] { return supervisor_->watched_ranks(); },
                           .store_users = [this](const auto& pids) { return store_users(pids); },
                           .on_hang = [this](const HangReport& report, const auto& views) { on_hang(report, views); },
                           .on_progress = [this] { on_progress(); }};
  if (place_.nodes > 1) {
    options.ask_others = [this](std::chrono::milliseconds timeout) { gathering_->ask(timeout); };
    gathering_.emplace(
        loop_, HangGatheringOptions{.node = place_.node,
                                    .nodes = place_.nodes,
                                    .send_text = place_.send_text,
                                    .views = [this] { return hang_watch_->views(supervisor_->watched_ranks()); },
                                    .reports = options.timeout.count() > 0,
                                    .on_report = [this](const HangReport& report) { hang_watch_->report(report); },
                                    .on_progress = [this] { hang_watch_->resume_after_hang(); },
                                    .on_no_reply = [this] { hang_watch_->diagnose_alone(); }});
  }
  hang_watch_.emplace(loop_, messages_, std::move(options));
}

void JobWatch::watch_for_stragglers() {
  StragglerWatchOptions options{.threshold = options_.straggler_threshold,
                                .finds_stragglers = place_.node == 0,
                                .host = job_.host,
                                .ranks = [this] { return supervisor_->watched_ranks(); },
                                .gpu_of = [this](int rank) { return gpu_of(rank); },
                                .on_change = [this](const StragglerChange& change) { on_straggler(change); }};
  if (place_.nodes > 1) {
    samples_.emplace(place_.node, place_.nodes, place_.send_text);
    options.others = [this] { return samples_->others(); };
    options.on_samples = [this](const std::vector<RankSample>& samples) { samples_->send(samples); };
  }
  straggler_watch_.emplace(loop_, std::move(options));
}

// Stops the helper process that queries the GPU driver, so that it is not taken for a process that the ranks have left.
void JobWatch::rank_ended() {
  if (supervisor_ == nullptr || !supervisor_->has_running_ranks()) gpus_.reset();
}

std::optional<GpuState> JobWatch::gpu_of(int rank) const {
  if (!gpus_ || gpus_->gpus().empty()) return std::nullopt;
  const int first = supervisor_->all_ranks().front().rank;  // the ranks of a node are consecutive
  return gpus_->gpu(place_.gpu(rank - first));
}

void JobWatch::on_message(int from, const std::string& text) {
  if (supervisor_ == nullptr || !gathering_) return;
  const auto word = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (word.is_object() && !samples_->on_message(from, word)) gathering_->on_message(from, word);
}

void JobWatch::on_straggler(const StragglerChange& change) {
  const std::string rank = "rank " + std::to_string(change.straggler.rank);
  messages_.print(change.is_over ? rank + " no longer delays the others; it delayed them for " +
                                       duration_text(static_cast<std::uint64_t>(change.seconds * 1e6))
                                 : to_text(change.straggler));
  const auto now = std::chrono::system_clock::now();
  if (change.is_over) {
    job_.findings.end_delay(change.straggler.rank, now);
  } else {
    job_.findings.begin_delay(change.straggler.rank, to_text(change.straggler), now);
  }
  events_.straggler(job_.attempt, change);
}

// Returns those of `pids` that have a connection to the store, or a child that has one: a rank that takes part in the
// job keeps this connection, even when a wrapper script runs it.
std::set<pid_t> JobWatch::store_users(const std::vector<pid_t>& pids) const {
  PortsOfSockets sockets;
  for (const std::uint16_t port : ports_) sockets.merge(sockets_to_port(port));
  std::set<pid_t> users;
  if (sockets.empty()) return users;
  for (const pid_t pid : pids) {
    const std::vector<pid_t> family = process_tree_of(pid);
    const bool is_connected =
        std::any_of(family.begin(), family.end(), [&](pid_t process) { return !sockets_of(process, sockets).empty(); });
    if (is_connected) users.insert(pid);
  }
  return users;
}

void JobWatch::on_hang(const HangReport& report, const std::vector<RankView>& views) {
  const Hang& hang = job_.findings.begin_hang(report, report.found);
  events_.hang(job_.attempt, hang);
  keep_flight_records(views);
  has_record_ = options_.on_hang != Options::OnHang::kReport;
  if (options_.on_hang_command.empty() || report.is_shown_elsewhere) return end_hanging_job();
  hang_command_.run(options_.on_hang_command, hang, job_.job, [this] { end_hanging_job(); });
}

// Does nothing when the ranks made progress while --on_hang_command ran.
void JobWatch::end_hanging_job() {
  if (options_.on_hang == Options::OnHang::kReport || supervisor_ == nullptr || !job_.findings.hang()) return;
  supervisor_->stop_on_timeout("no rank made progress; the report above names the cause",
                               options_.on_hang == Options::OnHang::kRestart);
}

void JobWatch::on_progress() {
  if (const auto& hang = job_.findings.hang()) {
    events_.hang_ended(job_.attempt, *hang, std::chrono::system_clock::now());
  }
  job_.findings.clear_hang();
}

void JobWatch::ranks_ended() {
  timeline_.end_attempt([this] { return supervisor_->must_end_now(); });
}

void JobWatch::end_attempt(JobEnd& end) {
  if (supervisor_ == nullptr) return;
  timeline_.await_others([this] { return supervisor_->must_end_now(); });
  if (exit_status(end) != 0 && hang_watch_) {
    const auto views = hang_watch_->observer().views(supervisor_->all_ranks());
    if (!has_record_) keep_flight_records(views);
    const std::string difference = divergence(views);
    if (!difference.empty()) end.hints.push_back("collectives: " + difference);
  }
  if (const std::string text = straggler_watch_->finish(supervisor_->all_ranks()); !text.empty()) messages_.print(text);
  job_.findings.end_attempt(std::chrono::system_clock::now());
  gpus_.reset();
  gathering_.reset();
  samples_.reset();
  straggler_watch_.reset();
  hang_watch_.reset();
  stack_answers_.end_attempt();
  supervisor_ = nullptr;
}

void JobWatch::keep_flight_records(const std::vector<RankView>& views) {
  const bool is_any =
      std::any_of(views.begin(), views.end(), [](const auto& view) { return view.progress.has_value(); });
  if (layout_.log_folder.empty() || !is_any) return;
  const std::string folder = layout_.attempt_folder(job_.attempt);
  const int first = views.front().rank;  // the ranks of a node are consecutive
  const bool is_written = write_flight_records(views, folder, [&](const RankView& view) {
    return layout_.rank_folder(job_.attempt, {.rank = view.rank, .local_rank = view.rank - first}) +
           "/flight_record.json";
  });
  if (std::exchange(has_reported_record_, true))
    return;  // the files are the same, and now also contain what has arrived since
  messages_.print(is_written ? "the last collectives of each rank are in " + folder + "/flight_record"
                             : "the last collectives of the ranks could not be written to " + folder);
}

std::string JobWatch::answer(const std::string& request) {
  constexpr std::string_view kTimeline = "timeline ";
  const std::string line = request.substr(0, request.find('\n'));
  if (StackAnswers::is_stack_request(line)) {
    if (!hang_watch_) return "error: no rank is running\n";
    return stack_answers_.answer(line, hang_watch_->stacks(), supervisor_->watched_ranks());
  }
  if (!request.starts_with(kTimeline)) return json_text(document());
  return timeline_.command(request.substr(kTimeline.size(), request.find('\n') - kTimeline.size())) + "\n";
}

nlohmann::ordered_json JobWatch::document() const {
  std::vector<RankFigures> ranks;
  if (supervisor_ != nullptr && hang_watch_) {
    for (RankView& view : hang_watch_->observer().views(supervisor_->all_ranks())) {
      RankFigures figures{.steps_per_second = hang_watch_->observer().steps_per_second(view.rank)};
      if (const auto times = straggler_watch_->step_times(view.rank)) {
        figures.own_step_seconds = times->own_seconds;
        figures.waited_step_seconds = times->waited_seconds;
      }
      if (const Straggler* straggler = straggler_watch_->straggler(view.rank)) figures.delay_text = to_text(*straggler);
      figures.gpu = gpu_of(view.rank);
      figures.view = std::move(view);
      ranks.push_back(std::move(figures));
    }
  }
  return status_document(job_, ranks, ddp::detail::page_clock(), std::chrono::system_clock::now());
}

}  // namespace launcher
