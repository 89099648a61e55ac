#include "timeline/forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "timeline/expected_maximum.h"

namespace ddp::timelines {
namespace {

constexpr std::int64_t kMinCap = std::int64_t{64} << 10;
constexpr std::int64_t kMaxBuckets = 4096;
constexpr double kSame = 1.001;  // steps that differ by a smaller factor are regarded as equal

Algorithm faster(double bytes, const Scenario& scenario) {
  if (scenario.algorithm) return *scenario.algorithm;
  const bool is_ring = ring_time(bytes, scenario.placement, scenario.network) <=
                       hierarchical_time(bytes, scenario.placement, scenario.network);
  return is_ring ? Algorithm::kRing : Algorithm::kHierarchical;
}

// Returns when the first `bytes` of all gradients are ready. The times between two known points are interpolated
// linearly.
class ReadyBytes {
 public:
  ReadyBytes(double backward, const std::vector<double>& bytes, const std::vector<double>& ready) {
    points_.push_back({0, backward});
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const Point& last = points_.back();
      points_.push_back({last.bytes + bytes[i], std::max(last.time, ready[i])});
    }
  }
  double total() const { return points_.back().bytes; }
  double time_of(double bytes) const {
    const auto next = std::lower_bound(points_.begin(), points_.end(), bytes,
                                       [](const Point& point, double wanted) { return point.bytes < wanted; });
    if (next == points_.begin()) return next->time;
    if (next == points_.end()) return points_.back().time;
    const Point& before = *std::prev(next);
    return before.time + (next->time - before.time) * (bytes - before.bytes) / (next->bytes - before.bytes);
  }

 private:
  struct Point {
    double bytes = 0;
    double time = 0;
  };
  std::vector<Point> points_;
};

double shortest_step(const std::vector<BucketChoice>& choices) {
  return std::min_element(choices.begin(), choices.end(),
                          [](const auto& one, const auto& other) { return one.step < other.step; })
      ->step;
}

}  // namespace

double end_of_reductions(const std::vector<TimedBucket>& buckets) {
  double end = 0;
  for (const TimedBucket& bucket : buckets) end = std::max(end, bucket.ready) + bucket.transfer;
  return end;
}

Forecast::Forecast(const Cycles& cycles) : ready_(cycles.bucket_bytes.size()) {
  for (const std::int64_t bytes : cycles.bucket_bytes) bytes_.push_back(static_cast<double>(bytes));
  for (const Cycle& cycle : cycles.all) {
    computing_.push_back(cycle.computing);
    backward_.push_back(cycle.backward);
    for (std::size_t i = 0; i < ready_.size(); ++i) ready_[i].push_back(cycle.ready[i]);
  }
  std::sort(computing_.begin(), computing_.end());
  std::sort(backward_.begin(), backward_.end());
  for (auto& times : ready_) std::sort(times.begin(), times.end());
}

double Forecast::step_of_one() const {
  return expected_maximum(computing_, 1);
}

double Forecast::transfer_of(double bytes, const Scenario& scenario) const {
  return faster(bytes, scenario) == Algorithm::kRing ? ring_time(bytes, scenario.placement, scenario.network)
                                                     : hierarchical_time(bytes, scenario.placement, scenario.network);
}

std::vector<double> Forecast::ready_on(std::int64_t ranks) const {
  std::vector<double> ready;
  for (const auto& times : ready_) ready.push_back(expected_maximum(times, ranks));
  return ready;
}

Prediction Forecast::predict(const Scenario& scenario) const {
  const std::int64_t ranks = scenario.placement.ranks;
  Prediction prediction{.placement = scenario.placement, .computing = expected_maximum(computing_, ranks)};
  const std::vector<double> ready = ready_on(ranks);
  std::vector<TimedBucket> buckets;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    buckets.push_back({std::min(ready[i], prediction.computing), transfer_of(bytes_[i], scenario)});
    prediction.all_reduce += buckets.back().transfer;
  }
  prediction.step = std::max(prediction.computing, ranks > 1 ? end_of_reductions(buckets) : 0);
  prediction.efficiency = prediction.step > 0 ? step_of_one() / prediction.step : 1;
  prediction.algorithm = faster(*std::max_element(bytes_.begin(), bytes_.end()), scenario);
  return prediction;
}

std::vector<Prediction> Forecast::curve(const Scenario& scenario, std::int64_t most) const {
  const std::int64_t per_host = scenario.placement.ranks_per_host();
  std::vector<Placement> placements;
  for (std::int64_t ranks = 1; ranks < std::min(per_host, most + 1); ranks *= 2) placements.push_back({ranks, 1});
  for (std::int64_t hosts = 1; hosts * per_host <= most; hosts *= 2) placements.push_back({hosts * per_host, hosts});
  const auto same = [&](const Placement& each) { return each.ranks == scenario.placement.ranks; };
  if (std::none_of(placements.begin(), placements.end(), same)) placements.push_back(scenario.placement);
  std::sort(placements.begin(), placements.end(),
            [](const Placement& one, const Placement& other) { return one.ranks < other.ranks; });
  std::vector<Prediction> predictions;
  for (const Placement& placement : placements) {
    Scenario each = scenario;
    each.placement = placement;
    predictions.push_back(predict(each));
  }
  return predictions;
}

std::vector<BucketChoice> Forecast::bucket_choices(const Scenario& scenario) const {
  const std::int64_t ranks = scenario.placement.ranks;
  const double computing = expected_maximum(computing_, ranks);
  const ReadyBytes gradients(expected_maximum(backward_, ranks), bytes_, ready_on(ranks));
  const double total = gradients.total();
  const auto choice_of = [&](std::int64_t cap, std::int64_t count) {
    std::vector<TimedBucket> buckets;
    double done = 0;
    for (std::int64_t i = 1; i <= count; ++i) {
      const double end = i == count ? total : static_cast<double>(i) * static_cast<double>(cap);
      buckets.push_back({std::min(gradients.time_of(end), computing), transfer_of(end - done, scenario)});
      done = end;
    }
    return BucketChoice{.cap = cap, .buckets = count, .step = std::max(computing, end_of_reductions(buckets))};
  };
  std::vector<BucketChoice> choices;
  std::int64_t cap = kMinCap;
  while (static_cast<double>(cap) * static_cast<double>(kMaxBuckets) < total) cap *= 2;
  for (; static_cast<double>(cap) < total; cap *= 2) {
    choices.push_back(choice_of(cap, static_cast<std::int64_t>(std::ceil(total / static_cast<double>(cap)))));
  }
  choices.push_back(choice_of(0, 1));
  return choices;
}

const BucketChoice& best_of(const std::vector<BucketChoice>& choices) {
  const double least = shortest_step(choices);
  const auto last = std::find_if(choices.rbegin(), choices.rend(),
                                 [&](const BucketChoice& each) { return each.step <= kSame * least; });
  return *last;
}

bool recorded_are_best(const Prediction& recorded, const std::vector<BucketChoice>& choices) {
  return recorded.step <= kSame * shortest_step(choices);
}

}  // namespace ddp::timelines
