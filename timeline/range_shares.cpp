#include "timeline/range_shares.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "timeline/intervals.h"

namespace ddp::timelines {
namespace {

constexpr std::string_view kBackward = "backward";
constexpr std::string_view kWait = "wait for gradients";
constexpr std::string_view kCommunication = "communication";

using Ranges = std::map<std::string, Intervals>;  // by name

Intervals ranges_named(const Ranges& ranges, std::string_view name) {
  const auto found = ranges.find(std::string(name));
  return found == ranges.end() ? Intervals{} : found->second;
}

Intervals all_of(const Ranges& ranges) {
  Intervals all;
  for (const auto& [name, each] : ranges) all.insert(all.end(), each.begin(), each.end());
  return merged(std::move(all));
}

// The intervals that the shares of a rank refer to: its steps, or the whole recording if there are no steps.
Intervals window_of(const Ranges& ranges, const std::map<int, RankLine>& lines, int rank) {
  Intervals steps;
  if (const auto line = lines.find(rank); line != lines.end()) {
    for (const Slice& step : line->second.steps) steps.push_back({step.begin, step.end});
  }
  if (!steps.empty()) return merged(std::move(steps));
  const Intervals all = all_of(ranges);
  return all.empty() ? all : Intervals{{all.front().begin, all.back().end}};
}

RangeShare share_of(Ranges ranges, const Intervals& window) {
  RangeShare share{.total = total(window)};
  Intervals busy;
  for (auto& [name, each] : ranges) {
    each = common(each, window);
    share.times[name] = total(each);
    if (name != kWait) busy.insert(busy.end(), each.begin(), each.end());
  }
  share.busy = total(merged(std::move(busy)));
  // The range of backward includes its wait for the gradients, which must be subtracted.
  const Intervals backward = ranges_named(ranges, kBackward);
  const Intervals transfers = common(ranges_named(ranges, kCommunication), backward);
  const Intervals waits = common(ranges_named(ranges, kWait), backward);
  share.hidden = total(transfers) - total(common(transfers, waits));
  if (!backward.empty()) share.times[std::string(kBackward)] -= total(waits);
  return share;
}

// Returns the names with the largest total time over all ranks.
std::vector<std::string> largest(const std::map<int, RangeShare>& shares, std::size_t most) {
  std::map<std::string, std::int64_t> sums;
  for (const auto& [rank, share] : shares) {
    for (const auto& [name, time] : share.times) sums[name] += time;
  }
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [name, time] : sums) {
    if (time > 0) order.emplace_back(time, name);
  }
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(order.size(), most); ++i) names.push_back(order[i].second);
  return names;
}

}  // namespace

RangeShares range_shares(const Trace& trace, const std::map<int, RankLine>& lines, Activity activity,
                         std::size_t names) {
  std::map<int, Ranges> ranges;
  for (const Slice& slice : trace.slices) {
    if (slice.activity != activity) continue;
    const std::string& name = trace.names[slice.name];
    const bool is_bucket = activity == Activity::kDevice && name.starts_with("bucket ");
    ranges[slice.rank][is_bucket ? std::string(kCommunication) : name].push_back({slice.begin, slice.end});
  }
  RangeShares shares;
  for (auto& [rank, of_rank] : ranges) {
    for (auto& [name, each] : of_rank) each = merged(std::move(each));
    shares.ranks.emplace(rank, share_of(of_rank, window_of(of_rank, lines, rank)));
  }
  shares.names = largest(shares.ranks, names);
  for (auto& [rank, share] : shares.ranks) {
    Ranges others = std::move(ranges.at(rank));
    std::erase_if(others, [&](const auto& each) {
      return std::find(shares.names.begin(), shares.names.end(), each.first) != shares.names.end();
    });
    share.others = total(common(all_of(others), window_of(others, lines, rank)));
    std::erase_if(share.times, [&](const auto& each) { return others.contains(each.first) || each.second <= 0; });
  }
  return shares;
}

}  // namespace ddp::timelines
