#include "timeline/device_shares.h"

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

DeviceShare share_of(Ranges ranges) {
  DeviceShare share;
  Intervals all, busy;
  for (auto& [name, each] : ranges) {
    each = merged(std::move(each));
    share.times[name] = total(each);
    all.insert(all.end(), each.begin(), each.end());
    if (name != kWait) busy.insert(busy.end(), each.begin(), each.end());
  }
  share.busy = total(merged(std::move(busy)));
  all = merged(std::move(all));
  share.total = all.back().end - all.front().begin;
  // The range of backward ends when the gradients are there.
  const Intervals backward = ranges_named(ranges, kBackward);
  const Intervals transfers = common(ranges_named(ranges, kCommunication), backward);
  const Intervals waits = common(ranges_named(ranges, kWait), backward);
  share.hidden = total(transfers) - total(common(transfers, waits));
  share.times[std::string(kBackward)] -= total(waits);
  std::erase_if(share.times, [](const auto& each) { return each.second <= 0; });
  return share;
}

}  // namespace

std::map<int, DeviceShare> device_shares(const Trace& trace) {
  std::map<int, Ranges> ranges;
  for (const Slice& slice : trace.slices) {
    if (slice.activity != Activity::kDevice) continue;
    const std::string& name = trace.names[slice.name];
    const bool is_bucket = name.starts_with("bucket ");
    ranges[slice.rank][is_bucket ? std::string(kCommunication) : name].push_back({slice.begin, slice.end});
  }
  std::map<int, DeviceShare> shares;
  for (auto& [rank, each] : ranges) shares.emplace(rank, share_of(std::move(each)));
  return shares;
}

}  // namespace ddp::timelines
