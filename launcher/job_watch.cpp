#include "launcher/job_watch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "launcher/outcome/job_status.h"
#include "launcher/processes/socket_owners.h"
#include "launcher/system/host_name.h"
#include "launcher/watch/flight_record.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kUsualTimeout = 120s;

std::string text_of(const nlohmann::ordered_json& document) {
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

JobWatch::JobWatch(EventLoop& loop, Messages& messages, const Options& options, const LogLayout& layout,
                   const std::string& run_id, pid_t guardian)
    : loop_(loop),
      messages_(messages),
      options_(options),
      layout_(layout),
      job_{.job = run_id,
           .pid = guardian,
           .host = host_name(),
           .program = options.program,
           .start = std::chrono::system_clock::now()} {
  status_.emplace(loop, job_.pid, [this] { return text_of(document()); });
  if (options_.metrics_port) {
    metrics_.emplace(loop, MetricsAddress{options_.metrics_host, *options_.metrics_port},
                     [this] { return open_metrics(document()); });
  }
}

void JobWatch::begin_attempt(Supervisor& supervisor, std::vector<std::uint16_t> ports, int attempt, int world_size) {
  supervisor_ = &supervisor;
  has_record_ = false;
  ports_ = std::move(ports);
  job_.attempt = attempt;
  job_.world_size = world_size;
  hang_watch_.emplace(
      loop_, messages_,
      HangWatchOptions{.timeout = options_.hang_timeout.value_or(kUsualTimeout),
                       .was_asked_for = options_.hang_timeout.has_value(),
                       .host = job_.host,
                       .stack_signal = stack_signal(),
                       .ranks = [this] { return supervisor_->watched_ranks(); },
                       .uses_store = [this](pid_t pid) { return is_at_store(pid); },
                       .on_hang = [this](const Verdict& verdict, const auto& views) { on_hang(verdict, views); }});
}

// A rank that takes part in the job keeps its connection to the store.
bool JobWatch::is_at_store(pid_t pid) const {
  return std::any_of(ports_.begin(), ports_.end(),
                     [&](std::uint16_t port) { return !sockets_of(pid, sockets_to_port(port)).empty(); });
}

void JobWatch::on_hang(const Verdict& verdict, const std::vector<RankView>& views) {
  keep_flight_records(views);
  has_record_ = options_.on_hang != Options::OnHang::kReport;
  if (options_.on_hang == Options::OnHang::kReport) return;
  supervisor_->stop_late("no rank made progress: " + verdict.sentence, options_.on_hang == Options::OnHang::kRestart);
}

void JobWatch::end_attempt(JobEnd& end) {
  if (supervisor_ == nullptr) return;
  if (exit_status(end) != 0 && hang_watch_) {
    const auto views = hang_watch_->observer().views(supervisor_->all_ranks());
    if (!has_record_) keep_flight_records(views);
    const std::string difference = divergence(views);
    if (!difference.empty()) end.hints.push_back("collectives: " + difference);
  }
  hang_watch_.reset();
  supervisor_ = nullptr;
}

void JobWatch::keep_flight_records(const std::vector<RankView>& views) {
  const bool is_any =
      std::any_of(views.begin(), views.end(), [](const auto& view) { return view.progress.has_value(); });
  if (layout_.log_folder.empty() || !is_any) return;
  const std::string folder = layout_.attempt_folder(job_.attempt);
  const int first = views.front().rank;  // ranks of a node follow each other
  const bool is_written = write_flight_records(views, folder, [&](const RankView& view) {
    return layout_.rank_folder(job_.attempt, {.rank = view.rank, .local_rank = view.rank - first}) +
           "/flight_record.json";
  });
  messages_.say(is_written ? "the last collectives of each rank are in " + folder + "/flight_record"
                           : "the last collectives of the ranks could not be written to " + folder);
}

nlohmann::ordered_json JobWatch::document() const {
  std::vector<RankRate> ranks;
  if (supervisor_ != nullptr && hang_watch_) {
    for (RankView& view : hang_watch_->observer().views(supervisor_->all_ranks())) {
      const double rate = hang_watch_->observer().steps_per_second(view.rank);
      ranks.push_back({std::move(view), rate});
    }
  }
  return status_document(job_, ranks, ddp::detail::page_clock(), std::chrono::system_clock::now());
}

}  // namespace launcher
