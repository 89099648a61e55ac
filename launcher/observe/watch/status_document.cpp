#include "launcher/observe/watch/status_document.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/observe/watch/collective_text.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;

double seconds(std::uint64_t microseconds) {
  return static_cast<double>(microseconds) / 1e6;
}

std::uint64_t since(std::uint64_t now, std::uint64_t begin) {
  return now > begin ? now - begin : 0;
}

ordered_json number_or_null(const std::optional<double>& number) {
  return number ? ordered_json(*number) : ordered_json(nullptr);
}

// The collective in which the rank is, else the last one that it has completed.
ordered_json collective_of(const ddp::detail::ProgressSnapshot& progress) {
  const auto& calls = progress.collectives;
  if (calls.empty()) return nullptr;
  const auto open = std::find_if(calls.begin(), calls.end(), [](const auto& call) { return call.is_open(); });
  const auto& call = open != calls.end() ? *open : calls.back();
  const CollectiveParts parts = parse_signature(call.signature);
  return {{"name", parts.name},
          {"number", call.number},
          {"group", progress.groups[call.group].path},
          {"bytes", parts.bytes ? ordered_json(*parts.bytes) : ordered_json(nullptr)},
          {"finished", !call.is_open()},
          {"text", collective_text(call, progress.groups[call.group])}};
}

// Adds the times of the program's own phases by name. The rest is the time of phases without a name, when there are too
// many.
void add_own_phases(ordered_json& spent, const ddp::detail::ProgressSnapshot& progress, std::uint64_t all,
                    std::uint64_t going_on) {
  const std::string rest_name(ddp::progress::name_of(ddp::progress::Phase::kUser));
  std::map<std::string, std::uint64_t> times = progress.named;
  if (going_on > 0 && progress.phase_name != rest_name) times[progress.phase_name] += going_on;
  std::uint64_t rest = all;
  for (const auto& [name, time] : times) {
    rest -= std::min(rest, time);
    spent[name] = spent.value(name, 0.0) + seconds(time);  // the program may use a name of the library's phases
  }
  if (rest > 0) spent[rest_name] = spent.value(rest_name, 0.0) + seconds(rest);
}

// JSON has no number for infinity and NaN.
ordered_json number_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void add_progress(ordered_json& rank, const ddp::detail::ProgressSnapshot& progress, std::uint64_t now) {
  rank["phase"] = progress.phase_name;
  rank["phase_seconds"] = seconds(since(now, progress.phase_since));
  rank["step"] = progress.step;
  ordered_json values = ordered_json::object();
  for (const auto& [name, value] : progress.values) values[name] = number_json(value);
  rank["values"] = std::move(values);
  rank["collectives"] = progress.collectives_begun;
  rank["collective"] = collective_of(progress);
  ordered_json spent = ordered_json::object();
  for (const auto& [phase, time] : progress.spent) {
    const std::uint64_t going_on = phase == progress.phase ? since(now, progress.phase_since) : 0;
    if (time + going_on == 0) continue;
    if (phase != ddp::progress::Phase::kUser) {
      spent[std::string(ddp::progress::name_of(phase))] = seconds(time + going_on);
    } else {
      add_own_phases(spent, progress, time + going_on, going_on);
    }
  }
  rank["seconds_in_phases"] = std::move(spent);
}

double seconds_since_epoch(WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

ordered_json document_of(const Hang& hang, WallTime now) {
  const Verdict& verdict = hang.verdict;
  return {{"kind", name_of(verdict.kind)},
          {"ranks", verdict.culprits},
          {"waiting_rank", verdict.waiter ? ordered_json(*verdict.waiter) : ordered_json(nullptr)},
          {"message", verdict.lasting_sentence},
          {"since", seconds_since_epoch(hang.since)},
          {"reported", seconds_since_epoch(hang.reported)},
          {"seconds", std::chrono::duration<double>(now - hang.since).count()}};
}

ordered_json document_of(const Delay& delay) {
  return {{"rank", delay.rank},
          {"message", delay.sentence},
          {"since", seconds_since_epoch(delay.begin)},
          {"until", delay.end ? ordered_json(seconds_since_epoch(*delay.end)) : ordered_json(nullptr)}};
}

ordered_json document_of(const RankFigures& figures, std::uint64_t now) {
  const RankView& view = figures.view;
  ordered_json rank{{"rank", view.rank}, {"host", view.host}, {"pid", view.pid}, {"runs", view.runs()}};
  rank["ended"] = view.runs() ? ordered_json(nullptr) : ordered_json(view.ended);
  if (view.progress) {
    add_progress(rank, *view.progress, now);
    rank["steps_per_second"] = number_or_null(figures.steps_per_second);
    rank["own_step_seconds"] = number_or_null(figures.own_step_seconds);
    rank["waited_step_seconds"] = number_or_null(figures.waited_step_seconds);
    rank["holds_up"] = figures.delay_text.empty() ? ordered_json(nullptr) : ordered_json(figures.delay_text);
  }
  rank["idle_seconds"] = seconds(view.idle_us);
  if (view.process) {
    rank["process"] = to_text(*view.process);
    rank["cpu_share"] = view.cpu_share;
    rank["memory_bytes"] = view.process->resident_bytes;
    rank["processes"] = view.processes;
  }
  if (figures.gpu) {
    rank["gpu"] = {{"uuid", figures.gpu->uuid},
                   {"use_percent", figures.gpu->use_percent},
                   {"memory_bytes", figures.gpu->memory_bytes},
                   {"memory_total_bytes", figures.gpu->memory_total},
                   {"clock_mhz", figures.gpu->clock_mhz},
                   {"celsius", figures.gpu->celsius}};
  }
  return rank;
}

}  // namespace

ordered_json status_document(const JobView& job, const std::vector<RankFigures>& ranks, std::uint64_t now,
                             std::chrono::system_clock::time_point time) {
  ordered_json document{{"job", job.job},
                        {"pid", job.pid},
                        {"host", job.host},
                        {"program", job.program},
                        {"attempt", job.attempt},
                        {"world_size", job.world_size},
                        {"seconds", std::chrono::duration<double>(time - job.start).count()},
                        {"metrics", job.metrics.empty() ? ordered_json(nullptr) : ordered_json(job.metrics)}};
  document["restart_in_seconds"] = job.restart_time
                                       ? ordered_json(std::chrono::duration<double>(*job.restart_time - time).count())
                                       : ordered_json(nullptr);
  document["hang"] = job.findings.hang() ? document_of(*job.findings.hang(), time) : ordered_json(nullptr);
  document["stragglers"] = ordered_json::array();
  for (const Delay& delay : job.findings.delays()) document["stragglers"].push_back(document_of(delay));
  document["ranks"] = ordered_json::array();
  for (const RankFigures& rank : ranks) document["ranks"].push_back(document_of(rank, now));
  return document;
}

}  // namespace launcher
