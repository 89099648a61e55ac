#include "timeline/forecast_report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "timeline/cell_text.h"

namespace ddp::timelines {
namespace {

using nlohmann::ordered_json;
using Row = std::vector<std::string>;

double mean(const Cycles& cycles, double Cycle::*member) {
  double sum = 0;
  for (const Cycle& cycle : cycles.all) sum += cycle.*member;
  return sum / static_cast<double>(cycles.all.size());
}

std::int64_t total_bytes(const Cycles& cycles) {
  return std::accumulate(cycles.bucket_bytes.begin(), cycles.bucket_bytes.end(), std::int64_t{0});
}

std::string count_of(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// Formats the size of a bucket, which is a power of two.
std::string cap_text(const BucketChoice& choice) {
  constexpr std::int64_t kMebi = std::int64_t{1} << 20;
  if (choice.cap == 0) return "all";
  return choice.cap < kMebi ? std::to_string(choice.cap >> 10) + " KiB" : std::to_string(choice.cap / kMebi) + " MiB";
}

// The least and the largest number of steps of a rank. At the end of a recording, ranks may differ by a few steps.
std::pair<std::size_t, std::size_t> steps_of_rank(const Cycles& cycles) {
  const auto [least, most] =
      std::minmax_element(cycles.steps.begin(), cycles.steps.end(),
                          [](const auto& one, const auto& other) { return one.second < other.second; });
  return {least->second, most->second};
}

std::string recorded(const Cycles& cycles) {
  const auto [least, most] = steps_of_rank(cycles);
  const std::size_t ranks = cycles.steps.size();
  std::string text = "recorded: ";
  if (ranks < cycles.ranks_in_file) text += std::to_string(ranks) + " of ";
  text += count_of(std::max(ranks, cycles.ranks_in_file), "rank") + ", ";
  if (least < most) text += std::to_string(least) + " to ";
  text += count_of(most, "step") + " of " + time_text(mean(cycles, &Cycle::recorded)) + " (mean), of which computing " +
          time_text(mean(cycles, &Cycle::computing)) + "; " + count_of(cycles.bucket_bytes.size(), "bucket") + ", " +
          bytes_text(total_bytes(cycles)) + (cycles.is_cut_off ? "; the end is cut off" : "") + "\n";
  if (cycles.lost > 0) {
    text +=
        count_of(cycles.lost, "event") + (cycles.lost == 1 ? " was" : " were") + " lost: what follows may be wrong\n";
  }
  if (cycles.left_out > 0) {
    text += count_of(cycles.left_out, "step") + " with buckets of other sizes " +
            (cycles.left_out == 1 ? "is" : "are") + " left out\n";
  }
  const double waits = mean(cycles, &Cycle::other_waits);
  if (waits > mean(cycles, &Cycle::recorded) / 100) {
    text += time_text(waits) +
            " of a step are waits for collectives other than gradient reductions, which are not predicted\n";
  }
  return text;
}

std::string curve_table(const std::vector<Prediction>& curve, std::size_t columns) {
  constexpr double kLetters = 20;
  std::vector<Row> rows{{"ranks", "hosts", "computing", "all-reduce", "by", "exposed", "step", "efficiency", ""}};
  for (const Prediction& each : curve) {
    rows.push_back(
        {std::to_string(each.placement.ranks), std::to_string(each.placement.hosts), time_text(each.computing),
         time_text(each.all_reduce), each.placement.ranks == 1 ? "-" : std::string(name_of(each.algorithm)),
         time_text(each.step - each.computing), time_text(each.step), format("%.1f %%", 100 * each.efficiency),
         std::string(static_cast<std::size_t>(kLetters * each.efficiency + 0.5), '#')});
  }
  return detail::text_table(rows, columns);
}

std::string best_text(const std::vector<BucketChoice>& choices, const Prediction& recorded) {
  const std::string ranks = "\nfor " + std::to_string(recorded.placement.ranks) + " ranks ";
  if (recorded_are_best(recorded, choices)) {
    return ranks + "the recorded buckets would be best: no bucket size shortens the step of " +
           time_text(recorded.step) + " by more than 0.1 %\n";
  }
  const BucketChoice& best = best_of(choices);
  const std::string size = best.cap == 0 ? "one bucket for all gradients" : "a bucket size of " + cap_text(best);
  return ranks + size + " would be best: a step of " + time_text(best.step) +
         " (recorded buckets: " + time_text(recorded.step) + ")\n";
}

std::string bucket_table(const std::vector<BucketChoice>& choices, const Cycles& cycles, const Prediction& recorded,
                         std::size_t columns) {
  std::vector<Row> rows{{"bucket size", "buckets", "step"},
                        {"recorded", std::to_string(cycles.bucket_bytes.size()), time_text(recorded.step)}};
  for (const BucketChoice& each : choices)
    rows.push_back({cap_text(each), std::to_string(each.buckets), time_text(each.step)});
  return detail::text_table(rows, columns);
}

ordered_json json_of(const Prediction& each) {
  return {{"ranks", each.placement.ranks},        {"hosts", each.placement.hosts},
          {"computing_ms", each.computing / 1e6}, {"all_reduce_ms", each.all_reduce / 1e6},
          {"algorithm", name_of(each.algorithm)}, {"exposed_ms", (each.step - each.computing) / 1e6},
          {"step_ms", each.step / 1e6},           {"efficiency", each.efficiency}};
}

ordered_json json_of(const BucketChoice& each) {
  return {{"bytes", each.cap}, {"buckets", each.buckets}, {"step_ms", each.step / 1e6}};
}

// The recorded buckets may have several sizes, so "bytes" is null for them.
ordered_json best_json(const std::vector<BucketChoice>& choices, const Cycles& cycles, const Prediction& recorded) {
  ordered_json best = json_of(best_of(choices));
  const bool is_recorded = recorded_are_best(recorded, choices);
  if (is_recorded) {
    best = {{"bytes", nullptr}, {"buckets", cycles.bucket_bytes.size()}, {"step_ms", recorded.step / 1e6}};
  }
  best["recorded"] = is_recorded;
  return best;
}

}  // namespace

std::string forecast_text(const Cycles& cycles, const Scenario& scenario, std::size_t columns) {
  const Forecast forecast(cycles);
  const auto curve = forecast.curve(scenario, kCurveEnd);
  std::string text = recorded(cycles);
  text += '\n';
  text += curve_table(curve, columns);
  const std::size_t known = cycles.all.size() / 2;  // expected_maximum() explains the limit
  if (curve.back().placement.ranks > static_cast<std::int64_t>(known)) {
    text += "computing is that of the slowest rank; for more than " + count_of(known, "rank") +
            " it is extrapolated: record more steps for a better estimate\n";
  }
  if (scenario.placement.ranks == 1) return fitting(text, columns);
  const auto choices = forecast.bucket_choices(scenario);
  const Prediction as_recorded = forecast.predict(scenario);
  text += best_text(choices, as_recorded) + bucket_table(choices, cycles, as_recorded, columns);
  return fitting(text, columns);
}

std::string forecast_json(const Cycles& cycles, const Scenario& scenario) {
  const Forecast forecast(cycles);
  const auto choices = forecast.bucket_choices(scenario);
  const Prediction as_recorded = forecast.predict(scenario);
  const auto [least, most] = steps_of_rank(cycles);
  ordered_json document{{"recorded",
                         {{"ranks", cycles.steps.size()},
                          {"ranks_in_file", cycles.ranks_in_file},
                          {"steps", least},
                          {"most_steps", most},
                          {"steps_left_out", cycles.left_out},
                          {"step_ms", mean(cycles, &Cycle::recorded) / 1e6},
                          {"computing_ms", mean(cycles, &Cycle::computing) / 1e6},
                          {"other_waits_ms", mean(cycles, &Cycle::other_waits) / 1e6},
                          {"bucket_bytes", cycles.bucket_bytes},
                          {"lost_events", cycles.lost},
                          {"cut_off", cycles.is_cut_off}}},
                        {"predicted", json_of(as_recorded)},
                        {"curve", ordered_json::array()},
                        {"best_bucket_size", best_json(choices, cycles, as_recorded)},
                        {"bucket_sizes", ordered_json::array()}};
  for (const Prediction& each : forecast.curve(scenario, kCurveEnd)) document["curve"].push_back(json_of(each));
  for (const BucketChoice& each : choices) document["bucket_sizes"].push_back(json_of(each));
  return document.dump(2) + "\n";
}

}  // namespace ddp::timelines
