#include "timeline/forecast.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "timeline/all_reduce_cost.h"
#include "timeline/cycles.h"
#include "timeline/expected_maximum.h"
#include "timeline/forecast_report.h"
#include "timeline/what_if.h"

namespace ddp::timelines {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

// 1 GB/s and 10 us between hosts, 10 GB/s and 1 us within them.
constexpr Network kNetwork{.between = {.bandwidth = 1e9, .latency = 10e3},
                           .within = {.bandwidth = 1e10, .latency = 1e3}};

TEST_CASE("AllReduceCost: a ring sends 2 (n - 1) parts of 1 / n, each over the slowest link") {
  CHECK_THAT(ring_time(8e6, {4, 4}, kNetwork), WithinRel(6 * (10e3 + 2e6)));
  CHECK_THAT(ring_time(8e6, {4, 1}, kNetwork), WithinRel(6 * (1e3 + 2e5)));
  CHECK_THAT(ring_time(8e6, {8, 2}, kNetwork), WithinRel(14 * (10e3 + 1e6)));
  CHECK(ring_time(8e6, {1, 1}, kNetwork) == 0);
  Network slow_within = kNetwork;
  slow_within.within.latency = 1e6;
  CHECK_THAT(ring_time(8e6, {8, 2}, slow_within), WithinRel(14 * (1e6 + 1e5)));
}

TEST_CASE("AllReduceCost: hierarchically, hosts exchange everything once, and their ranks share it before and after") {
  CHECK_THAT(hierarchical_time(8e6, {8, 2}, kNetwork), WithinRel(6 * (1e3 + 2e5) + 2 * (10e3 + 4e6)));
  CHECK_THAT(hierarchical_time(8e6, {4, 4}, kNetwork), WithinRel(ring_time(8e6, {4, 4}, kNetwork)));
  CHECK_THAT(hierarchical_time(8e6, {4, 1}, kNetwork), WithinRel(ring_time(8e6, {4, 1}, kNetwork)));
  CHECK(hierarchical_time(8e6, {1, 1}, kNetwork) == 0);
  CHECK(hierarchical_time(1000, {1024, 128}, kNetwork) < ring_time(1000, {1024, 128}, kNetwork) / 5);
}

TEST_CASE("ExpectedMaximum: of few values it is the sum over all draws") {
  const std::vector<double> values{1, 2, 3, 4};
  CHECK_THAT(expected_maximum(values, 1), WithinRel(2.5));
  CHECK_THAT(expected_maximum(values, 2), WithinRel((1 * 1 + 2 * 3 + 3 * 5 + 4 * 7) / 16.0));
  CHECK_THAT(expected_maximum({0, 0, 1, 1}, 2), WithinRel(0.75));
  for (const std::int64_t count : {1, 2, 3, 1000}) CHECK_THAT(expected_maximum({5, 5, 5}, count), WithinRel(5.0));
  CHECK(expected_maximum({5}, 1000) == 5);
}

TEST_CASE(
    "ExpectedMaximum: beyond half the values it grows as that of an exponential distribution, the harmonic numbers") {
  std::vector<double> values;
  constexpr int kValues = 1000;
  for (int i = 0; i < kValues; ++i) values.push_back(-std::log(1 - (i + 0.5) / kValues));
  double harmonic = 0;
  double last = 0;
  for (std::int64_t count = 1; count <= 100'000; ++count) {
    harmonic += 1.0 / static_cast<double>(count);
    if (count > 16 && count % 997 != 0) continue;
    const double expected = expected_maximum(values, count);
    CHECK_THAT(expected, WithinRel(harmonic, 0.1));
    CHECK(expected > last);
    last = expected;
  }
}

TEST_CASE("Forecast: a bucket is reduced when it is ready and the one before is done") {
  CHECK(end_of_reductions({}) == 0);
  CHECK(end_of_reductions({{10, 5}, {12, 5}, {30, 5}}) == 35);  // the second waits until 15
  CHECK(end_of_reductions({{10, 30}, {12, 5}}) == 45);
}

Cycles equal_cycles() {
  const Cycle cycle{.computing = 10e6, .backward = 4e6, .ready = {6e6, 8e6}, .recorded = 12e6};
  return {.bucket_bytes = {1'000'000, 1'000'000}, .all = {cycle, cycle}, .steps = {{0, 1}, {1, 1}}};
}

Scenario scenario_of(std::int64_t ranks, std::int64_t hosts, const Network& network = kNetwork) {
  return {.placement = {.ranks = ranks, .hosts = hosts}, .network = network};
}

TEST_CASE("Forecast: a step ends with the computation or with the last bucket") {
  const Forecast forecast(equal_cycles());
  const Prediction one = forecast.predict(scenario_of(1, 1));
  CHECK(one.step == 10e6);
  CHECK(one.efficiency == 1);
  const Prediction hidden = forecast.predict(scenario_of(2, 1));  // 2 (1 us + 50 us) after 8 ms
  CHECK(hidden.step == 10e6);
  CHECK_THAT(hidden.all_reduce, WithinRel(2 * 102e3));
  const Prediction exposed = forecast.predict(scenario_of(4, 4));  // each takes 6 (10 us + 250 us)
  CHECK_THAT(exposed.step, WithinRel(10e6));
  const Prediction many = forecast.predict(scenario_of(100, 100));  // 198 (10 us + 10 us), the first one from 6 ms on
  CHECK_THAT(many.step, WithinRel(6e6 + 2 * 198 * 20e3));
  CHECK_THAT(many.efficiency, WithinRel(10e6 / many.step));
}

TEST_CASE("Forecast: stragglers delay every bucket by the expected maximum") {
  Cycles cycles = equal_cycles();
  Cycle slow_cycle = cycles.all[0];
  for (double* time : {&slow_cycle.computing, &slow_cycle.backward, &slow_cycle.ready[0], &slow_cycle.ready[1]})
    *time += 4e6;
  cycles.all.insert(cycles.all.end(), 2, slow_cycle);
  const Forecast forecast(cycles);
  CHECK(forecast.step_of_one() == 12e6);
  const Network fast{.between = {.bandwidth = 1e18}, .within = {.bandwidth = 1e18}};
  CHECK_THAT(forecast.predict(scenario_of(2, 2, fast)).step, WithinRel(13e6));
  Network slow = fast;
  slow.between.latency = 5e6;  // 10 ms for each bucket
  CHECK_THAT(forecast.predict(scenario_of(2, 2, slow)).step, WithinRel(9e6 + 20e6, 1e-9));
}

TEST_CASE("Forecast: the curve has powers of two and the scenario itself, with full hosts") {
  const Forecast forecast(equal_cycles());
  const auto places = [&](const Scenario& scenario, std::int64_t most) {
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    for (const Prediction& each : forecast.curve(scenario, most))
      found.emplace_back(each.placement.ranks, each.placement.hosts);
    return found;
  };
  using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(places(scenario_of(8, 8), 16) == Places{{1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}});
  CHECK(places(scenario_of(16, 4), 16) == Places{{1, 1}, {2, 1}, {4, 1}, {8, 2}, {16, 4}});
  CHECK(places(scenario_of(18, 3), 16) == Places{{1, 1}, {2, 1}, {4, 1}, {6, 1}, {12, 2}, {18, 3}});
  CHECK(places(scenario_of(64, 1), 16) == Places{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {64, 1}});
}

TEST_CASE("Forecast: latency makes one bucket the best, bandwidth small ones") {
  const Forecast forecast(equal_cycles());
  Network network{.between = {.bandwidth = 1e9, .latency = 1e9}, .within = {}};
  const auto with_latency = forecast.bucket_choices(scenario_of(2, 2, network));
  CHECK(best_of(with_latency).buckets == 1);
  network.between.latency = 0;
  const auto without = forecast.bucket_choices(scenario_of(2, 2, network));
  REQUIRE(without.size() == 6);  // 64 KiB to 1 MiB, and one bucket
  CHECK(without.front().cap == 65'536);
  CHECK(without.front().buckets == 31);
  CHECK(without.back().buckets == 1);
  CHECK_THAT(without.back().step, WithinRel(8e6 + 2e6));  // hidden: 2 ms from 8 ms on
  network.between.bandwidth = 1e8;
  // 10 ms a megabyte: with one bucket 20 ms from 8 ms on; with small ones 20 ms from when the first one is ready.
  const auto slow = forecast.bucket_choices(scenario_of(2, 2, network));
  CHECK_THAT(slow.back().step, WithinRel(28e6));
  CHECK_THAT(slow.front().step, WithinRel(4e6 + 2e6 * 0.065536 + 20e6));
  CHECK(best_of(slow).cap == 65'536);
}

TEST_CASE("Forecast: the recorded buckets are best unless a bucket size is faster by 0.1 %") {
  const auto step_of = [](double step) { return Prediction{.step = step}; };
  const std::vector<BucketChoice> choices{{.cap = 65'536, .buckets = 31, .step = 1e6}, {.cap = 0, .step = 2e6}};
  CHECK(recorded_are_best(step_of(0.9e6), choices));
  CHECK(recorded_are_best(step_of(1e6), choices));
  CHECK(recorded_are_best(step_of(1.0009e6), choices));
  CHECK(!recorded_are_best(step_of(1.0011e6), choices));
}

// The buckets of about 1 MiB are as in a recording for which "one bucket" was named although it was slower.
TEST_CASE("ForecastReport: recorded buckets that are faster than all bucket sizes are called the best") {
  const Cycle cycle{.computing = 40e6, .backward = 20e6, .ready = {30e6, 39e6}, .recorded = 50e6};
  const Cycles cycles{.bucket_bytes = {1'052'676, 1'050'624}, .all = {cycle, cycle}, .steps = {{0, 1}, {1, 1}}};
  const Scenario scenario = parse_what_if("ranks=1024,hosts=128,bandwidth=10Gbit,latency=20us");
  const Forecast forecast(cycles);
  const auto choices = forecast.bucket_choices(scenario);
  REQUIRE(forecast.predict(scenario).step < best_of(choices).step);
  const std::string text = forecast_text(cycles, scenario);
  CHECK_THAT(text, ContainsSubstring("\nfor 1024 ranks the recorded buckets would be best: no bucket size shortens the "
                                     "step of 47.50 ms by more than 0.1 %\n"));
  CHECK_THAT(text, ContainsSubstring("\n  recorded     2        47.50 ms\n"));
  const auto json = nlohmann::json::parse(forecast_json(cycles, scenario));
  CHECK(json["best_bucket_size"]["recorded"] == true);
  CHECK(json["best_bucket_size"]["bytes"] == nullptr);
  CHECK(json["best_bucket_size"]["buckets"] == 2);
  CHECK(json["best_bucket_size"]["step_ms"] == json["predicted"]["step_ms"]);
}

}  // namespace
}  // namespace ddp::timelines
