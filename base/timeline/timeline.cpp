#include "ddprun/base/timeline.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include <ddprun/base/rank_info.h>

#include "base/job.h"
#include "base/timeline/collector.h"
#include "base/timeline/own_timeline.h"
#include "base/timeline/trace_builder.h"
#include "base/timeline/trace_event.h"
#include "base/timeline/trace_file.h"

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFlushInterval{500};
constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

// The number of times that the launcher has restarted the job.
int restart_of_job() {
  try {
    return rank_info_from_environment().restart_count;
  } catch (const std::invalid_argument&) {
    return 0;  // init_process_group() reports the error
  }
}

// Each restart gets a separate file, so that earlier recordings are kept.
std::filesystem::path file_of(const JobPlace& job, int restart, const std::filesystem::path& file) {
  std::string place = job.size > 1 ? ".rank" + std::to_string(job.rank) : "";
  if (restart > 0) place += ".restart" + std::to_string(restart);
  if (place.empty()) return file;
  std::filesystem::path own = file;
  const std::string extension = file.extension().string();
  return own.replace_extension(place + (extension.empty() ? ".json" : extension));
}

}  // namespace

struct Timeline::Parts {
  Parts(const std::string& path, const JobPlace& job, detail::ClockPair base)
      : prefix(job_prefix(job)),
        file(path, detail::metadata_json(base, job.rank, job.size)),
        builder(file, base.steady),
        collector(builder, [this] { after_pass(); }) {}
  ~Parts() {
    collector.end_all();
    file.flush();
    say_problem();
  }
  // For recording that the program itself starts: the current step counts as complete.
  void apply(const detail::RecordingPlan& plan) {
    detail::set_plan(*ring, plan, /*is_running=*/true);
    if (detail::Recorder* recorder = detail::recording()) recorder->begin_step();
  }
  void after_pass() {
    const auto now = Clock::now();
    if (file.waiting() < kFlushBytes && now - last_flush < kFlushInterval) return;
    file.flush();
    last_flush = now;
    say_problem();
  }
  void say_problem() {
    if (file.problem().empty() || has_reported) return;
    has_reported = true;
    std::fprintf(stderr, "%sno further events are written to the timeline %s: %s\n", prefix.c_str(),
                 file.path().c_str(), file.problem().c_str());
  }

  std::string prefix;
  detail::TraceFile file;
  detail::TraceBuilder builder;
  Clock::time_point last_flush = Clock::now();
  bool has_reported = false;
  std::shared_ptr<detail::TimelineRing> ring = detail::private_ring();
  detail::Collector collector;  // declared last: its thread uses the other members
};

Timeline::Timeline(const std::filesystem::path& file, const TimelineOptions& options) {
  const JobPlace job = job_of_this_thread();
  const int restart = restart_of_job();
  file_ = file_of(job, restart, file);
  const auto ring = detail::private_ring();
  const std::string problem = job_prefix(job) + "no timeline can be written to " + file_.string() + ": ";
  if (!ring) throw std::runtime_error(problem + "not enough memory");
  if (ring->mode.load(std::memory_order_relaxed) != 0) {
    throw std::runtime_error(problem + "this process already has a ddp::Timeline; destroy it first");
  }
  if (!detail::redirect_events_to(ring)) return;
  try {
    parts_ = std::make_unique<Parts>(file_.string(), job, detail::read_clocks());
  } catch (const std::runtime_error& error) {
    detail::redirect_events_to(nullptr);
    throw std::runtime_error(problem + error.what());
  }
  const bool is_all = options.first_step <= 0 && options.end_step == TimelineOptions{}.end_step;
  const std::string name = "rank " + std::to_string(job.rank);
  parts_->collector.add(job.rank, restart > 0 ? name + ", restart " + std::to_string(restart) : name, ring);
  const detail::RecordingPlan plan{.mode = is_all ? detail::RecordingMode::kOn : detail::RecordingMode::kSteps,
                                   .first = static_cast<std::uint64_t>(std::max<std::int64_t>(options.first_step, 0)),
                                   .last = static_cast<std::uint64_t>(std::max<std::int64_t>(options.end_step, 0))};
  if (options.starts) parts_->apply(plan);
}

Timeline::~Timeline() {
  if (!parts_) return;
  stop();
  detail::redirect_events_to(nullptr);
}

void Timeline::start() {
  if (parts_) parts_->apply({.mode = detail::RecordingMode::kOn});
}

void Timeline::stop() {
  if (parts_) parts_->apply({.mode = detail::RecordingMode::kOff});
}

}  // namespace ddp
