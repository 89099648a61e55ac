#include "timeline/analysis.h"

#include <algorithm>
#include <utility>

#include "timeline/intervals.h"

namespace ddp::timelines {
namespace {

constexpr std::int64_t kWholeTimeline = -1;

struct RankStep {
  int rank = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The number of the restart of the job, and the number of the step.
using StepKey = std::pair<int, std::int64_t>;

std::map<StepKey, std::vector<RankStep>> steps_of(const std::map<int, RankLine>& lines) {
  std::map<StepKey, std::vector<RankStep>> steps;
  for (const auto& [rank, line] : lines) {
    for (const Slice& step : line.steps) steps[{step.restart, step.number}].push_back({rank, step.begin, step.end});
  }
  if (!steps.empty()) return steps;
  for (const auto& [rank, line] : lines) {
    if (line.segments.empty()) continue;
    steps[{0, kWholeTimeline}].push_back({rank, line.segments.front().begin, line.segments.back().end});
  }
  return steps;
}

Intervals computing(const std::vector<Segment>& segments) {
  Intervals set;
  for (const Segment& segment : segments) {
    if (segment.activity == Activity::kBackward) set.push_back({segment.begin, segment.end});
  }
  return merged(std::move(set));
}

Interval transfer_of(const Slice& bucket) {
  return {std::clamp(bucket.started.value_or(bucket.begin), bucket.begin, bucket.end), bucket.end};
}

void add_bucket(std::map<std::int64_t, BucketSummary>& buckets, const Slice& bucket, const Intervals& computes) {
  const Interval transfer = transfer_of(bucket);
  BucketSummary& sum = buckets[bucket.number];
  sum.index = bucket.number;
  sum.bytes = std::max(sum.bytes, bucket.bytes);
  ++sum.count;
  sum.queued += static_cast<double>(transfer.begin - bucket.begin);
  sum.transfer += static_cast<double>(transfer.end - transfer.begin);
  sum.exposed += static_cast<double>(transfer.end - transfer.begin - total(common({transfer}, computes)));
}

void add_rank(Analysis& analysis, std::map<std::int64_t, BucketSummary>& buckets, const RankLine& line,
              const RankStep& step) {
  const auto segments = within(line.segments, step.begin, step.end);
  RankShare& share = analysis.ranks[step.rank];
  std::int64_t known = 0;
  for (const Segment& segment : segments) {
    share.times[static_cast<std::size_t>(segment.activity)] += segment.end - segment.begin;
    if (segment.activity == Activity::kUser) share.own[segment.name] += segment.end - segment.begin;
    known += segment.end - segment.begin;
  }
  share.times[static_cast<std::size_t>(Activity::kOther)] += step.end - step.begin - known;
  share.total += step.end - step.begin;
  const Intervals computes = computing(segments);
  Intervals transfers;
  auto bucket = std::partition_point(line.buckets.begin(), line.buckets.end(),
                                     [&](const Slice& each) { return each.begin < step.begin; });
  for (; bucket != line.buckets.end() && bucket->begin < step.end; ++bucket) {
    add_bucket(buckets, *bucket, computes);
    transfers.push_back(transfer_of(*bucket));
  }
  transfers = merged(std::move(transfers));
  analysis.overlaps[step.rank].communication += total(transfers);
  analysis.overlaps[step.rank].hidden += total(common(transfers, computes));
}

}  // namespace

Analysis analyse(const std::map<int, RankLine>& lines) {
  Analysis analysis;
  std::map<std::int64_t, BucketSummary> buckets;
  for (const auto& [key, parts] : steps_of(lines)) {
    StepSummary step{
        .number = key.second, .restart = key.first, .begin = parts.front().begin, .end = parts.front().end};
    int last_rank = parts.front().rank;
    for (const RankStep& part : parts) {
      add_rank(analysis, buckets, lines.at(part.rank), part);
      step.begin = std::min(step.begin, part.begin);
      if (part.end > step.end) last_rank = part.rank;
      step.end = std::max(step.end, part.end);
    }
    step.path = critical_path(lines, step.begin, step.end, last_rank);
    analysis.steps.push_back(std::move(step));
  }
  for (auto& [index, sum] : buckets) {
    for (double* mean : {&sum.queued, &sum.transfer, &sum.exposed}) *mean /= static_cast<double>(sum.count);
    analysis.buckets.push_back(sum);
  }
  std::vector<std::size_t> order(analysis.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return analysis.steps[one].duration() < analysis.steps[other].duration();
  });
  if (!order.empty()) analysis.representative = order[order.size() / 2];
  return analysis;
}

}  // namespace ddp::timelines
