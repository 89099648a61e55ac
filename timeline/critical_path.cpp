#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

#include "timeline/analysis.h"

namespace ddp::timelines {
namespace {

// The time when a rank entered a collective. On all ranks, the same collective has the same name and the same number
// within its group.
struct Arrival {
  int rank = 0;
  std::int64_t begin = 0;
};

class Walk {
 public:
  explicit Walk(const std::map<int, RankLine>& lines) : lines_(lines) {}

  std::vector<PathPart> back_from(std::int64_t end, std::int64_t begin, int rank) {
    std::int64_t now = end;
    // Each pass either moves back in time or changes to another rank; the pass after such a change moves back in time.
    for (std::size_t turns = 0; now > begin && turns < kMaxTurns; ++turns) {
      const Segment segment = segment_before(rank, now, begin);
      if (segment.activity != Activity::kWait) {
        add({rank, segment.activity, segment.begin, now, segment.activity == Activity::kUser ? segment.name : kNoName});
        now = segment.begin;
        continue;
      }
      if (const auto absent = who_never_came(rank, segment.begin, now)) {
        rank = *absent;
        continue;
      }
      const Arrival last = last_to_come(rank, segment.begin, now);
      const bool is_late = last.rank != rank && last.begin > segment.begin && last.begin < now;
      const std::int64_t from = is_late ? last.begin : segment.begin;
      add({rank, Activity::kCollective, from, now});
      if (is_late) rank = last.rank;
      now = from;
    }
    std::reverse(path_.begin(), path_.end());
    return std::move(path_);
  }

 private:
  static constexpr std::size_t kMaxTurns = 1'000'000;

  // Returns the segment of the rank that ends at `now` or contains it.
  Segment segment_before(int rank, std::int64_t now, std::int64_t begin) const {
    const auto& segments = lines_.at(rank).segments;
    auto next = std::partition_point(segments.begin(), segments.end(), [&](const Segment& s) { return s.begin < now; });
    if (next == segments.begin()) return {.begin = begin, .end = now};
    const Segment& found = *std::prev(next);
    if (found.end < now) return {.begin = std::max(found.end, begin), .end = now};
    Segment part = found;
    part.begin = std::max(part.begin, begin);
    return part;
  }

  // Returns the collective that the rank waits for during this time: the last one that ends in it, or null.
  const Slice* awaited_by(int rank, std::int64_t begin, std::int64_t end) const {
    const auto& own = lines_.at(rank).collectives;
    const Slice* awaited = nullptr;
    const auto after =
        std::partition_point(own.begin(), own.end(), [&](const Slice& each) { return each.begin < end; });
    for (auto each = after; each != own.begin() && std::distance(each, after) < kNeighboursChecked;) {
      --each;
      if (each->end > begin && (awaited == nullptr || each->end > awaited->end)) awaited = &*each;
    }
    return awaited;
  }

  // Returns a rank that never entered the awaited collective and is not waiting itself, if the recording ended before
  // the collective did.
  std::optional<int> who_never_came(int rank, std::int64_t begin, std::int64_t end) const {
    const Slice* awaited = awaited_by(rank, begin, end);
    if (awaited == nullptr || !awaited->is_unfinished) return std::nullopt;
    for (const auto& [other, line] : lines_) {
      if (other == rank || line.segments.empty() || find_same(line, *awaited) != nullptr) continue;
      if (segment_before(other, end, begin).activity != Activity::kWait) return other;
    }
    return std::nullopt;
  }

  // Returns the rank that was the last to enter the collective that this rank waits for.
  Arrival last_to_come(int rank, std::int64_t begin, std::int64_t end) const {
    Arrival last{.rank = rank, .begin = begin};
    const Slice* awaited = awaited_by(rank, begin, end);
    if (awaited == nullptr) return last;
    for (const auto& [other, line] : lines_) {
      const auto found = find_same(line, *awaited);
      if (found != nullptr && found->begin > last.begin) last = {.rank = other, .begin = found->begin};
    }
    return last;
  }

  // Returns the same collective on another rank. It is the match that is nearest in time, because a collective from
  // before a restart may have the same number.
  static const Slice* find_same(const RankLine& line, const Slice& wanted) {
    const Slice* best = nullptr;
    const auto near = std::partition_point(line.collectives.begin(), line.collectives.end(),
                                           [&](const Slice& each) { return each.begin < wanted.begin; });
    const auto first = near - std::min<std::ptrdiff_t>(near - line.collectives.begin(), kNeighboursChecked);
    const auto last = near + std::min<std::ptrdiff_t>(line.collectives.end() - near, kNeighboursChecked);
    for (auto each = first; each != last; ++each) {
      if (each->name != wanted.name || each->number != wanted.number) continue;
      if (best == nullptr || std::abs(each->begin - wanted.begin) < std::abs(best->begin - wanted.begin)) best = &*each;
    }
    return best;
  }

  void add(const PathPart& part) {
    if (part.end <= part.begin) return;
    const bool continues = !path_.empty() && path_.back().rank == part.rank && path_.back().activity == part.activity &&
                           path_.back().name == part.name;
    if (continues) {
      path_.back().begin = part.begin;
    } else {
      path_.push_back(part);
    }
  }

  static constexpr std::ptrdiff_t kNeighboursChecked = 512;
  const std::map<int, RankLine>& lines_;
  std::vector<PathPart> path_;
};

}  // namespace

std::vector<PathPart> critical_path(const std::map<int, RankLine>& lines, std::int64_t begin, std::int64_t end,
                                    int last_rank) {
  return Walk(lines).back_from(end, begin, last_rank);
}

}  // namespace ddp::timelines
