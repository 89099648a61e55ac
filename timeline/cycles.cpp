#include "timeline/cycles.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "timeline/intervals.h"
#include "timeline/trace_reader.h"

namespace ddp::timelines {
namespace {

// For a given time: how much of the time before it lies in a set of intervals.
class TimeWithin {
 public:
  explicit TimeWithin(Intervals intervals) : set_(merged(std::move(intervals))) {
    std::int64_t sum = 0;
    for (const Interval& each : set_) before_.push_back(std::exchange(sum, sum + each.end - each.begin));
  }
  std::int64_t until(std::int64_t time) const {
    const auto next =
        std::partition_point(set_.begin(), set_.end(), [&](const auto& each) { return each.begin < time; });
    if (next == set_.begin()) return 0;
    const auto index = static_cast<std::size_t>(next - set_.begin()) - 1;
    return before_[index] + std::min(time, set_[index].end) - set_[index].begin;
  }

 private:
  Intervals set_;
  std::vector<std::int64_t> before_;
};

struct RankRecord {
  Intervals backwards{};  // including their waits for gradients, in order
  Intervals waits{};      // waits for other ranks
  std::vector<Slice> buckets{};
};

RankRecord record_of_host(const RankLine& line) {
  RankRecord record{.buckets = line.buckets};
  Interval run;
  bool has_backward = false;
  const auto add_run = [&] {
    if (has_backward) record.backwards.push_back(run);
    has_backward = false;
  };
  for (const Segment& segment : line.segments) {
    if (segment.activity == Activity::kWait) record.waits.push_back({segment.begin, segment.end});
    if (segment.activity != Activity::kBackward && segment.activity != Activity::kWait) {
      add_run();
      continue;
    }
    // A wait before the first backward segment does not belong to the backward.
    if (!has_backward) run.begin = segment.begin;
    has_backward = has_backward || segment.activity == Activity::kBackward;
    run.end = segment.end;
  }
  add_run();
  return record;
}

// The ranges of a device have no number of bytes. It is copied from the host's bucket with the same number.
std::map<int, RankRecord> records_of_devices(const Trace& trace, const std::map<int, RankLine>& lines) {
  constexpr std::string_view kBucketName = "bucket ";
  std::map<int, RankRecord> records;
  std::map<int, std::map<std::int64_t, std::int64_t>> bytes;
  for (const auto& [rank, line] : lines) {
    for (const Slice& bucket : line.buckets) bytes[rank][bucket.number] = bucket.bytes;
  }
  for (const Slice& slice : trace.slices) {
    if (slice.activity != Activity::kDevice) continue;
    const std::string_view name = trace.names[slice.name];
    RankRecord& record = records[slice.rank];
    if (name == "backward") record.backwards.push_back({slice.begin, slice.end});
    if (name == "wait for gradients") record.waits.push_back({slice.begin, slice.end});
    if (!name.starts_with(kBucketName)) continue;
    Slice bucket = slice;
    const auto parsed = std::from_chars(name.data() + kBucketName.size(), name.data() + name.size(), bucket.number);
    if (parsed.ec != std::errc()) continue;
    bucket.bytes = bytes[slice.rank][bucket.number];
    record.buckets.push_back(bucket);
  }
  std::erase_if(records, [](const auto& each) { return each.second.buckets.empty(); });
  for (auto& [rank, record] : records) {
    record.backwards = merged(std::move(record.backwards));
    std::sort(record.buckets.begin(), record.buckets.end(),
              [](const Slice& one, const Slice& other) { return one.begin < other.begin; });
  }
  return records;
}

struct Reduction {
  Interval backward{};
  std::vector<Slice> buckets{};

  std::vector<std::int64_t> layout() const {
    std::vector<std::int64_t> sizes;
    for (const Slice& bucket : buckets) sizes.push_back(bucket.bytes);
    return sizes;
  }
};

// Returns the backward passes that reduced gradients.
std::vector<Reduction> reductions_of(const RankRecord& record) {
  std::vector<Reduction> reductions;
  auto bucket = record.buckets.begin();
  for (const Interval& backward : record.backwards) {
    while (bucket != record.buckets.end() && bucket->begin < backward.begin) ++bucket;
    Reduction reduction{.backward = backward};
    for (; bucket != record.buckets.end() && bucket->begin <= backward.end; ++bucket)
      reduction.buckets.push_back(*bucket);
    const bool is_whole = std::none_of(reduction.buckets.begin(), reduction.buckets.end(),
                                       [](const Slice& each) { return each.is_unfinished; });
    if (reduction.buckets.empty() || !is_whole) continue;
    std::sort(reduction.buckets.begin(), reduction.buckets.end(),
              [](const Slice& one, const Slice& other) { return one.number < other.number; });
    reductions.push_back(std::move(reduction));
  }
  return reductions;
}

// Returns the intervals in which no steps were recorded, or in which the job was restarted.
Intervals gaps_of(const RankLine& line) {
  Intervals gaps;
  for (std::size_t i = 1; i < line.steps.size(); ++i) {
    const Slice& before = line.steps[i - 1];
    const Slice& next = line.steps[i];
    if (next.number != before.number + 1 || next.restart != before.restart) gaps.push_back({before.end, next.begin});
  }
  return gaps;
}

Intervals pauses_of(const RankLine& line) {
  Intervals pauses;
  for (const Segment& segment : line.segments) {
    const bool is_pause = segment.activity == Activity::kCheckpoint || segment.activity == Activity::kEvaluation ||
                          segment.activity == Activity::kClosing;
    if (is_pause) pauses.push_back({segment.begin, segment.end});
  }
  return pauses;
}

class CycleReader {
 public:
  CycleReader(const RankRecord& record, const RankLine& line)
      : gaps_(gaps_of(line)), waits_(record.waits), pauses_(pauses_of(line)), others_(both(record.waits, line)) {}

  // Returns nullopt if a part of the time between the two reductions was not recorded.
  std::optional<Cycle> between(const Reduction& before, const Reduction& now) {
    const std::int64_t begin = before.backward.end;
    const std::int64_t end = now.backward.end;
    const bool has_gap = std::any_of(gaps_.begin(), gaps_.end(),
                                     [&](const Interval& gap) { return begin < gap.end && gap.begin < end; });
    if (has_gap || end <= begin) return std::nullopt;
    const auto own = [&](std::int64_t time) {
      return static_cast<double>(time - others_.until(time) - begin + others_.until(begin));
    };
    Cycle cycle{.computing = own(end), .backward = own(std::max(now.backward.begin, begin))};
    for (const Slice& bucket : now.buckets) cycle.ready.push_back(own(bucket.begin));
    cycle.recorded = static_cast<double>(end - pauses_.until(end) - begin + pauses_.until(begin));
    cycle.other_waits = static_cast<double>(waits_.until(std::max(now.backward.begin, begin)) - waits_.until(begin));
    return cycle;
  }

 private:
  static Intervals both(Intervals waits, const RankLine& line) {
    const Intervals pauses = pauses_of(line);
    waits.insert(waits.end(), pauses.begin(), pauses.end());
    return waits;
  }
  Intervals gaps_;
  TimeWithin waits_;
  TimeWithin pauses_;
  TimeWithin others_;  // the times in which the rank waits or is not training
};

std::map<int, RankRecord> records_of(const Trace& trace, const std::map<int, RankLine>& lines) {
  auto records = records_of_devices(trace, lines);
  if (!records.empty()) return records;
  for (const auto& [rank, line] : lines) {
    if (!line.buckets.empty()) records.emplace(rank, record_of_host(line));
  }
  return records;
}

[[noreturn]] void refuse(const Trace& trace, const std::string& expected, const std::string& got) {
  throw TraceError("no prediction is possible: expected " + expected + ", got " + got +
                   (trace.is_cut_off ? "; the end of the file is cut off" : ""));
}

[[noreturn]] void refuse_steps(const Trace& trace, std::size_t reductions) {
  refuse(trace, "at least two consecutive steps of DistributedDataParallel",
         reductions == 0 ? "no complete backward that reduced buckets of gradients"
                         : std::to_string(reductions) + " that reduced buckets of gradients, and no two of " +
                               "them are consecutive on one rank; record more steps");
}

// `others_differ`: other ranks have complete steps too, but with other bucket sizes.
[[noreturn]] void refuse_single_rank(const Trace& trace, int rank, bool others_differ) {
  const std::size_t ranks = trace.ranks.size();
  refuse(trace, "complete steps of at least two ranks",
         "those of rank " + std::to_string(rank) + " only" +
             (ranks > 1 ? ", of " + std::to_string(ranks) + " ranks in the file" +
                              (others_differ ? "; those of other ranks have buckets of other sizes" : "")
                        : "; join the files of all ranks by `ddprun-timeline merge`"));
}

void check_bytes(const Trace& trace, const std::vector<std::int64_t>& bytes) {
  constexpr double kMax = 1e15;
  const double total = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  if (total > 0 && total <= kMax) return;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", total);
  refuse(trace, "buckets of 1 to 1e15 bytes in all", text.data());
}

}  // namespace

Cycles cycles_of(const Trace& trace, const std::map<int, RankLine>& lines) {
  struct Candidate {
    std::vector<std::int64_t> layout;
    Cycle cycle;
  };
  std::map<int, std::vector<Candidate>> candidates;
  std::map<std::vector<std::int64_t>, std::size_t> layouts;
  std::size_t count = 0;
  for (const auto& [rank, record] : records_of(trace, lines)) {
    const std::vector<Reduction> reductions = reductions_of(record);
    count += reductions.size();
    CycleReader reader(record, lines.at(rank));
    for (std::size_t i = 1; i < reductions.size(); ++i) {
      auto cycle = reader.between(reductions[i - 1], reductions[i]);
      if (!cycle) continue;
      candidates[rank].push_back({reductions[i].layout(), std::move(*cycle)});
      ++layouts[candidates[rank].back().layout];
    }
  }
  if (layouts.empty()) refuse_steps(trace, count);
  Cycles cycles{.ranks_in_file = trace.ranks.size(), .lost = trace.lost, .is_cut_off = trace.is_cut_off};
  cycles.bucket_bytes = std::max_element(layouts.begin(), layouts.end(), [](const auto& one, const auto& other) {
                          return one.second < other.second;
                        })->first;
  for (auto& [rank, of_rank] : candidates) {
    const std::size_t before = cycles.all.size();
    for (Candidate& each : of_rank) {
      if (each.layout == cycles.bucket_bytes) cycles.all.push_back(std::move(each.cycle));
    }
    const std::size_t steps = cycles.all.size() - before;
    if (steps > 0) cycles.steps[rank] = steps;
    cycles.left_out = std::max(cycles.left_out, of_rank.size() - steps);
  }
  if (cycles.steps.size() < 2) refuse_single_rank(trace, cycles.steps.begin()->first, candidates.size() > 1);
  check_bytes(trace, cycles.bucket_bytes);
  return cycles;
}

}  // namespace ddp::timelines
