#include <nlohmann/json.hpp>

#include <limits>

#include "timeline/range_shares.h"
#include "timeline/report.h"

namespace ddp::timelines {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kAllNames = std::numeric_limits<std::size_t>::max();

double milliseconds(double nanoseconds) {
  return nanoseconds / 1e6;
}
double milliseconds(std::int64_t nanoseconds) {
  return milliseconds(static_cast<double>(nanoseconds));
}

std::string name_in(const Trace& trace, std::uint32_t name) {
  return name < trace.names.size() ? trace.names[name] : "";
}

ordered_json json_of(const Trace& trace, const StepSummary& step) {
  ordered_json path = ordered_json::array();
  for (const PathPart& part : step.path) {
    path.push_back({{"rank", part.rank},
                    {"activity", part.activity == Activity::kCollective ? "communication" : name_of(part.activity)},
                    {"begin_ms", milliseconds(part.begin)},
                    {"end_ms", milliseconds(part.end)}});
    if (part.activity == Activity::kUser) path.back()["name"] = name_in(trace, part.name);
  }
  return {{"step", step.number},
          {"restart", step.restart},
          {"begin_ms", milliseconds(step.begin)},
          {"duration_ms", milliseconds(step.duration())},
          {"critical_path", std::move(path)}};
}

ordered_json json_of(const Trace& trace, int rank, const RankShare& share, const Overlap& overlap) {
  ordered_json times = ordered_json::object();
  for (std::size_t i = 0; i < kActivities; ++i) {
    if (share.times[i] > 0) times[std::string(name_of(static_cast<Activity>(i)))] = milliseconds(share.times[i]);
  }
  ordered_json own = ordered_json::object();
  for (const auto& [name, time] : share.own) own[name_in(trace, name)] = milliseconds(time);
  return {{"rank", rank},
          {"milliseconds", std::move(times)},
          {"own_ranges_ms", std::move(own)},
          {"total_ms", milliseconds(share.total)},
          {"communication_ms", milliseconds(overlap.communication)},
          {"overlapped_ms", milliseconds(overlap.hidden)},
          {"exposed_ms", milliseconds(overlap.communication - overlap.hidden)}};
}

ordered_json times_json(const RangeShare& share) {
  ordered_json times = ordered_json::object();
  for (const auto& [name, time] : share.times) times[name] = milliseconds(time);
  return times;
}

ordered_json json_of(int rank, const RangeShare& share) {
  return {{"rank", rank},
          {"total_ms", milliseconds(share.total)},
          {"busy_ms", milliseconds(share.busy)},
          {"ranges_ms", times_json(share)},
          {"overlapped_ms", milliseconds(share.hidden)}};
}

}  // namespace

std::string report_json(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis) {
  ordered_json document{{"ranks", ordered_json::array()},
                        {"events", trace.events},
                        {"lost_events", trace.lost},
                        {"cut_off", trace.is_cut_off},
                        {"clock_error_ms", milliseconds(trace.clock_error)}};
  const auto own = range_shares(trace, lines, Activity::kUser, kAllNames).ranks;
  for (const auto& [rank, share] : analysis.ranks) {
    document["ranks"].push_back(json_of(trace, rank, share, analysis.overlaps.at(rank)));
    document["ranks"].back()["ranges_ms"] = own.contains(rank) ? times_json(own.at(rank)) : ordered_json::object();
  }
  document["buckets"] = ordered_json::array();
  for (const BucketSummary& bucket : analysis.buckets) {
    document["buckets"].push_back({{"index", bucket.index},
                                   {"bytes", bucket.bytes},
                                   {"count", bucket.count},
                                   {"queued_ms", milliseconds(bucket.queued)},
                                   {"transfer_ms", milliseconds(bucket.transfer)},
                                   {"exposed_ms", milliseconds(bucket.exposed)}});
  }
  document["devices"] = ordered_json::array();
  for (const auto& [rank, share] : range_shares(trace, lines, Activity::kDevice, kAllNames).ranks) {
    document["devices"].push_back(json_of(rank, share));
  }
  document["steps"] = ordered_json::array();
  for (const StepSummary& step : analysis.steps) document["steps"].push_back(json_of(trace, step));
  if (!analysis.steps.empty()) document["representative_step"] = analysis.steps[analysis.representative].number;
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ddp::timelines
