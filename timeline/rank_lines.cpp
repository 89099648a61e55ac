#include "timeline/rank_lines.h"

#include <algorithm>
#include <utility>

namespace ddp::timelines {
namespace {

bool is_phase(Activity activity) {
  return activity != Activity::kUser && activity < Activity::kCollective;
}

// The segment has the activity of the innermost phase: user ranges within a phase count as that phase.
Segment segment_of(const std::vector<const Slice*>& open, std::int64_t begin, std::int64_t end) {
  Segment segment{.begin = begin, .end = end, .name = open.empty() ? kNoName : open.back()->name};
  const auto phase =
      std::find_if(open.rbegin(), open.rend(), [](const Slice* slice) { return is_phase(slice->activity); });
  if (phase != open.rend()) {
    segment.activity = (*phase)->activity;
  } else if (!open.empty()) {
    segment.activity = Activity::kUser;
  }
  return segment;
}

class Flattener {
 public:
  std::vector<Segment> flatten(const std::vector<Slice>& slices) {
    if (slices.empty()) return {};
    at_ = slices.front().begin;
    for (const Slice& slice : slices) {
      close_until(slice.begin);
      advance(slice.begin);
      open_.push_back(&slice);
    }
    std::int64_t last = at_;
    for (const Slice* slice : open_) last = std::max(last, slice->end);
    close_until(last);
    return std::move(segments_);
  }

 private:
  void close_until(std::int64_t time) {
    while (!open_.empty() && open_.back()->end <= time) {
      advance(open_.back()->end);
      open_.pop_back();
    }
  }
  void advance(std::int64_t to) {
    if (to <= at_) return;
    segments_.push_back(segment_of(open_, at_, to));
    at_ = to;
  }
  std::vector<const Slice*> open_;
  std::vector<Segment> segments_;
  std::int64_t at_ = 0;
};

void sort_by_begin(std::vector<Slice>& slices) {
  std::sort(slices.begin(), slices.end(), [](const Slice& one, const Slice& other) {
    return one.begin != other.begin ? one.begin < other.begin : one.end > other.end;
  });
}

}  // namespace

std::map<int, RankLine> rank_lines(const Trace& trace) {
  // Each process of a rank has its own threads.
  using Process = std::pair<int, std::uint16_t>;
  std::map<int, RankLine> lines;
  std::map<Process, std::map<std::uint64_t, std::int64_t>> phase_time;
  for (const Slice& slice : trace.slices) {
    RankLine& line = lines[slice.rank];
    if (slice.activity == Activity::kStep) line.steps.push_back(slice);
    if (slice.activity == Activity::kBucket) line.buckets.push_back(slice);
    if (slice.activity == Activity::kCollective) line.collectives.push_back(slice);
    if (is_phase(slice.activity)) phase_time[{slice.rank, slice.restart}][slice.lane] += slice.duration();
  }
  // If a rank has user ranges but no phases, these ranges determine the training thread.
  std::map<Process, std::map<std::uint64_t, std::int64_t>> own_time;
  for (const Slice& slice : trace.slices) {
    const Process process(slice.rank, slice.restart);
    const bool is_own = slice.activity == Activity::kUser && !phase_time.contains(process);
    if (is_own) own_time[process][slice.lane] += slice.duration();
  }
  phase_time.merge(own_time);
  std::map<Process, std::uint64_t> lanes;
  for (const auto& [process, times] : phase_time) {
    lanes[process] = std::max_element(times.begin(), times.end(), [](const auto& one, const auto& other) {
                       return one.second < other.second;
                     })->first;
  }
  std::map<int, std::vector<Slice>> training;
  for (const Slice& slice : trace.slices) {
    const auto lane = lanes.find({slice.rank, slice.restart});
    const bool is_training = lane != lanes.end() && lane->second == slice.lane;
    if (is_training && slice.activity < Activity::kCollective) training[slice.rank].push_back(slice);
  }
  for (auto& [rank, line] : lines) {
    sort_by_begin(line.steps);
    sort_by_begin(line.buckets);
    sort_by_begin(line.collectives);
    sort_by_begin(training[rank]);
    line.segments = Flattener().flatten(training[rank]);
  }
  return lines;
}

std::vector<Segment> within(const std::vector<Segment>& segments, std::int64_t begin, std::int64_t end) {
  std::vector<Segment> found;
  auto each = std::partition_point(segments.begin(), segments.end(), [&](const Segment& s) { return s.end <= begin; });
  for (; each != segments.end() && each->begin < end; ++each) {
    Segment part = *each;
    part.begin = std::max(part.begin, begin);
    part.end = std::min(part.end, end);
    found.push_back(part);
  }
  return found;
}

}  // namespace ddp::timelines
