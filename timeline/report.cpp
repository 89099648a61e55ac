#include "timeline/report.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text_table.h"
#include "base/text_width.h"
#include "timeline/cell_text.h"
#include "timeline/range_shares.h"

namespace ddp::timelines {
namespace {

using Row = std::vector<std::string>;

// The maximum number of columns for named ranges.
constexpr std::size_t kMaxColumns = 8;

std::string activity_text(Activity activity) {
  return activity == Activity::kCollective ? "communication" : std::string(name_of(activity));
}

// Returns the range of step numbers, such as "from 5 to 14", for each restart if there are any.
std::string numbers_of(const Analysis& analysis) {
  std::string text;
  for (std::size_t begin = 0; begin < analysis.steps.size();) {
    const StepSummary& first = analysis.steps[begin];
    std::size_t end = begin;
    while (end + 1 < analysis.steps.size() && analysis.steps[end + 1].restart == first.restart) ++end;
    text += text.empty() ? "" : ", ";
    if (first.restart > 0) text += "of restart " + std::to_string(first.restart) + " ";
    text += "from " + std::to_string(first.number) + " to " + std::to_string(analysis.steps[end].number);
    begin = end + 1;
  }
  return text;
}

std::string head(const Trace& trace, const Analysis& analysis) {
  std::string text = std::to_string(trace.ranks.size()) + (trace.ranks.size() == 1 ? " rank, " : " ranks, ");
  text += std::to_string(trace.events) + " events";
  if (trace.lost > 0) text += ", and " + std::to_string(trace.lost) + " that were lost: what follows may be wrong";
  if (trace.is_cut_off) text += "; the end is cut off";
  if (trace.clock_error > 0)
    text += "; clocks of different hosts agree within " + time_text(static_cast<double>(trace.clock_error));
  text += "\n";
  if (analysis.steps.empty()) return text;
  if (analysis.steps.front().number < 0) return text + "no steps: the whole timeline counts as one\n";
  std::vector<std::int64_t> times;
  for (const StepSummary& step : analysis.steps) times.push_back(step.duration());
  std::sort(times.begin(), times.end());
  const auto in_text = [&](std::size_t index) { return time_text(static_cast<double>(times[index])); };
  return text + std::to_string(times.size()) + (times.size() == 1 ? " step, " : " steps, ") + numbers_of(analysis) +
         "; a step takes " + in_text(times.size() / 2) + " (median; " + in_text(0) + " to " +
         in_text(times.size() - 1) + ")\n";
}

std::string own_name(const Trace& trace, std::uint32_t name) {
  if (name >= trace.names.size()) return "own range";
  std::vector<std::string> taken{"rank", "own ranges", "communication"};
  for (std::size_t i = 0; i < kActivities; ++i) taken.emplace_back(name_of(static_cast<Activity>(i)));
  return title(trace.names[name], taken);
}

std::string activity_text(const Trace& trace, Activity activity, std::uint32_t name) {
  return activity == Activity::kUser ? own_name(trace, name) : activity_text(activity);
}

// Returns the user-defined ranges with the largest total time over all ranks. All others are shown together as "own
// ranges".
std::vector<std::uint32_t> largest_own(const Analysis& analysis) {
  std::map<std::uint32_t, std::int64_t> sums;
  for (const auto& [rank, share] : analysis.ranks) {
    for (const auto& [name, time] : share.own) sums[name] += time;
  }
  std::vector<std::pair<std::int64_t, std::uint32_t>> order;
  for (const auto& [name, time] : sums) order.emplace_back(time, name);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::uint32_t> names;
  for (std::size_t i = 0; i < std::min(order.size(), kMaxColumns); ++i) names.push_back(order[i].second);
  return names;
}

std::string shares(const Trace& trace, const Analysis& analysis, std::size_t columns) {
  std::vector<Activity> shown;
  for (std::size_t i = 0; i < kActivities; ++i) {
    const bool is_used = std::any_of(analysis.ranks.begin(), analysis.ranks.end(),
                                     [&](const auto& rank) { return rank.second.times[i] > 0; });
    if (is_used && static_cast<Activity>(i) != Activity::kUser) shown.push_back(static_cast<Activity>(i));
  }
  const auto own = largest_own(analysis);
  const auto rest_of = [&](const RankShare& share) {
    std::int64_t rest = share.times[static_cast<std::size_t>(Activity::kUser)];
    for (const std::uint32_t name : own) rest -= share.own.contains(name) ? share.own.at(name) : 0;
    return rest;
  };
  const bool has_rest = std::any_of(analysis.ranks.begin(), analysis.ranks.end(),
                                    [&](const auto& rank) { return rest_of(rank.second) > 0; });
  std::vector<Row> rows{{"rank"}};
  for (const Activity activity : shown) rows[0].push_back(activity_text(activity));
  for (const std::uint32_t name : own) rows[0].push_back(own_name(trace, name));
  if (has_rest) rows[0].emplace_back("own ranges");
  for (const auto& [rank, share] : analysis.ranks) {
    Row row{std::to_string(rank)};
    if (share.times[static_cast<std::size_t>(Activity::kOther)] == share.total) {  // no step of it was recorded
      row.resize(rows[0].size(), "-");
      rows.push_back(std::move(row));
      continue;
    }
    for (const Activity activity : shown)
      row.push_back(share_text(share.times[static_cast<std::size_t>(activity)], share.total));
    for (const std::uint32_t name : own)
      row.push_back(share_text(share.own.contains(name) ? share.own.at(name) : 0, share.total));
    if (has_rest) row.push_back(share_text(rest_of(share), share.total));
    rows.push_back(std::move(row));
  }
  return "\nhow the steps spend their time:\n" + detail::text_table(rows, columns);
}

std::string overlap(const Analysis& analysis, std::size_t columns) {
  if (analysis.buckets.empty()) return "";
  std::vector<Row> rows{{"rank", "communication", "while backward computes", "exposed"}};
  const auto steps = static_cast<double>(analysis.steps.size());
  for (const auto& [rank, each] : analysis.overlaps) {
    const auto exposed = static_cast<double>(each.communication - each.hidden);
    rows.push_back({std::to_string(rank), time_text(static_cast<double>(each.communication) / steps),
                    share_text(each.hidden, each.communication), time_text(exposed / steps)});
  }
  std::string text = "\ngradients, per step:\n" + detail::text_table(rows, columns);
  rows = {{"bucket", "size", "ready until start", "transfer", "exposed"}};
  for (const BucketSummary& bucket : analysis.buckets) {
    rows.push_back({std::to_string(bucket.index), bytes_text(bucket.bytes), time_text(bucket.queued),
                    time_text(bucket.transfer), time_text(bucket.exposed)});
  }
  return text + "\n" + detail::text_table(rows, columns);
}

// The columns for named ranges: their titles and the cells of each rank.
class RangeColumns {
 public:
  RangeColumns(const RangeShares& shares, const std::vector<std::string>& taken) : names_(shares.names) {
    for (const std::string& name : names_) titles_.push_back(title(name, taken));
    has_others_ =
        std::any_of(shares.ranks.begin(), shares.ranks.end(), [](const auto& rank) { return rank.second.others > 0; });
    if (has_others_) titles_.emplace_back("other ranges");
  }
  void add_titles(Row& row) const { row.insert(row.end(), titles_.begin(), titles_.end()); }
  void add_cells(Row& row, const RangeShare& share) const {
    for (const std::string& name : names_) row.push_back(share_text(time_of(share, name), share.total));
    if (has_others_) row.push_back(share_text(share.others, share.total));
  }
  static std::int64_t time_of(const RangeShare& share, const std::string& name) {
    const auto found = share.times.find(name);
    return found == share.times.end() ? 0 : found->second;
  }

 private:
  std::vector<std::string> names_;
  Row titles_;
  bool has_others_ = false;
};

std::string devices(const Trace& trace, const std::map<int, RankLine>& lines, std::size_t columns) {
  const RangeShares shares = range_shares(trace, lines, Activity::kDevice, kMaxColumns);
  if (shares.ranks.empty()) return "";
  const RangeColumns ranges(shares, {"rank", "busy", "other ranges", "hidden"});
  std::vector<Row> rows{{"rank", "busy"}};
  ranges.add_titles(rows[0]);
  rows[0].emplace_back("hidden");
  for (const auto& [rank, share] : shares.ranks) {
    Row row{std::to_string(rank), share_text(share.busy, share.total)};
    ranges.add_cells(row, share);
    row.push_back(share_text(share.hidden, RangeColumns::time_of(share, "communication")));
    rows.push_back(std::move(row));
  }
  return "\nwhat the devices do in the steps (hidden: of communication, while backward computes):\n" +
         detail::text_table(rows, columns);
}

// Includes ranges within phases. The first table counts these as part of the phase.
std::string own_ranges(const Trace& trace, const std::map<int, RankLine>& lines, std::size_t columns) {
  const RangeShares shares = range_shares(trace, lines, Activity::kUser, kMaxColumns);
  if (shares.names.empty()) return "";
  const RangeColumns ranges(shares, {"rank", "other ranges"});
  std::vector<Row> rows{{"rank"}};
  ranges.add_titles(rows[0]);
  for (const auto& [rank, share] : shares.ranks) {
    rows.push_back({std::to_string(rank)});
    ranges.add_cells(rows.back(), share);
  }
  return "\nthe program's own ranges, in phases or not, of all threads:\n" + detail::text_table(rows, columns);
}

std::string path_shares(const Trace& trace, const Analysis& analysis, std::size_t columns) {
  using What = std::tuple<int, Activity, std::uint32_t>;
  std::map<What, std::int64_t> times;
  std::int64_t sum = 0;
  for (const StepSummary& step : analysis.steps) {
    for (const PathPart& part : step.path) {
      times[{part.rank, part.activity, part.name}] += part.end - part.begin;
      sum += part.end - part.begin;
    }
  }
  std::vector<std::pair<std::int64_t, What>> order;
  for (const auto& [what, time] : times) order.emplace_back(time, what);
  std::sort(order.rbegin(), order.rend());
  constexpr std::size_t kMaxRows = 12;
  std::vector<Row> rows{{"share", "rank", "does"}};
  for (std::size_t i = 0; i < std::min(order.size(), kMaxRows); ++i) {
    const auto& [time, what] = order[i];
    const auto& [rank, activity, name] = what;
    rows.push_back({share_text(time, sum), std::to_string(rank), activity_text(trace, activity, name)});
  }
  return "\nwhat decides how long the steps take (critical path):\n" + detail::text_table(rows, columns);
}

std::string path_of(const Trace& trace, const StepSummary& step, std::size_t columns) {
  std::vector<Row> rows{{"at", "for", "rank", "does"}};
  constexpr std::size_t kMaxRows = 40;
  constexpr std::int64_t kUnseen = 1000;  // parts shorter than 1/1000 of the step are not listed
  for (const PathPart& part : step.path) {
    if (rows.size() > kMaxRows) break;
    if (kUnseen * (part.end - part.begin) < step.duration()) continue;
    rows.push_back({time_text(static_cast<double>(part.begin - step.begin)),
                    time_text(static_cast<double>(part.end - part.begin)), std::to_string(part.rank),
                    activity_text(trace, part.activity, part.name)});
  }
  std::string text = "\ncritical path of ";
  text += step.number < 0 ? "all of it" : "step " + std::to_string(step.number);
  if (step.restart > 0) text += " of restart " + std::to_string(step.restart);
  text += ", which took " + time_text(static_cast<double>(step.duration())) + ":\n" + detail::text_table(rows, columns);
  if (step.path.size() > kMaxRows) text += "  and " + std::to_string(step.path.size() - kMaxRows) + " more\n";
  return text;
}

}  // namespace

std::string report_text(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis,
                        std::size_t columns) {
  std::string text = head(trace, analysis);
  if (analysis.steps.empty()) return fitting(text + "no rank recorded anything\n", columns);
  text += shares(trace, analysis, columns) + own_ranges(trace, lines, columns) + overlap(analysis, columns);
  text += devices(trace, lines, columns);
  text += path_shares(trace, analysis, columns);
  return fitting(text + path_of(trace, analysis.steps[analysis.representative], columns), columns);
}

}  // namespace ddp::timelines
