#include "timeline/forecast.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "timeline/all_reduce_cost.h"
#include "timeline/cycles.h"
#include "timeline/expected_maximum.h"
#include "timeline/forecast_report.h"
#include "timeline/trace_reader.h"
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

// Events in microseconds.
class TraceText {
 public:
  void add(int rank, const std::string& kind, double begin, double end, const std::string& name = "",
           const std::string& args = "") {
    const bool is_own = kind == "step" || kind == "bucket" || kind == "device";
    events_ << (is_empty_ ? "" : ",") << R"({"ph":"X","pid":)" << rank << ",\"tid\":" << (is_own ? 1'000'000'000 : 1)
            << ",\"ts\":" << begin << ",\"dur\":" << end - begin << ",\"cat\":\"" << kind << "\",\"name\":\""
            << (name.empty() ? kind : name) << "\",\"args\":{" << args << "}}";
    is_empty_ = false;
  }
  void bucket(int rank, int index, std::int64_t bytes, double begin, double end, const std::string& kind = "bucket") {
    add(rank, kind, begin, end, "bucket " + std::to_string(index),
        "\"index\":" + std::to_string(index) + ",\"bytes\":" + std::to_string(bytes));
  }
  // `tail` follows the last event.
  Cycles cycles(const std::string& tail = "]}") const {
    std::istringstream file(R"({"otherData":{"writer":"ddprun timeline 1"},"traceEvents":[)" + events_.str() + tail);
    const Trace trace = read_trace(file);
    return cycles_of(trace, rank_lines(trace));
  }

 private:
  std::ostringstream events_;
  bool is_empty_ = true;
};

// A step of 100 us from `begin` on: backward computes from 30 to 70 and waits until 90.
void add_step(TraceText& text, int rank, int number, double begin, std::int64_t bytes = 1000) {
  text.add(rank, "step", begin, begin + 100, "step", "\"step\":" + std::to_string(number));
  text.add(rank, "forward", begin, begin + 30);
  text.add(rank, "backward", begin + 30, begin + 90);
  text.bucket(rank, 0, bytes, begin + 50, begin + 60);
  text.bucket(rank, 1, 2 * bytes, begin + 70, begin + 90);
  text.add(rank, "wait", begin + 70, begin + 90);
  text.add(rank, "optimizer", begin + 90, begin + 100);
}

TEST_CASE("Cycles: a rank's own time is that without waits, evaluation and checkpoints") {
  TraceText text;
  for (const int rank : {0, 1}) {
    add_step(text, rank, 0, 0);
    text.add(rank, "evaluation", 100, 500);
    add_step(text, rank, 1, 500);
    text.add(rank, "wait", 600, 605);
    text.add(rank, "checkpoint", 605, 700);
    add_step(text, rank, 2, 700);
  }
  const Cycles cycles = text.cycles();
  CHECK(cycles.steps == std::map<int, std::size_t>{{0, 2}, {1, 2}});
  CHECK(cycles.ranks_in_file == 2);
  CHECK(cycles.bucket_bytes == std::vector<std::int64_t>{1000, 2000});
  REQUIRE(cycles.all.size() == 4);
  for (const Cycle& cycle : cycles.all) {
    CHECK(cycle.computing == 80e3);
    CHECK(cycle.backward == 40e3);
    CHECK(cycle.ready == std::vector<double>{60e3, 80e3});
  }
  CHECK(cycles.all[0].recorded == 100e3);
  CHECK(cycles.all[0].other_waits == 0);
  CHECK(cycles.all[1].recorded == 105e3);
  CHECK(cycles.all[1].other_waits == 5e3);
}

TEST_CASE("Cycles: steps that are not in a row, and buckets of other sizes, are left out") {
  TraceText text;
  for (const int rank : {0, 1}) {
    for (int step = 0; step < 6; ++step)
      add_step(text, rank, step < 3 ? step : step + 10, 100 * step + (step < 3 ? 0 : 1000), step == 1 ? 5 : 1000);
  }
  const Cycles cycles = text.cycles();
  CHECK(cycles.left_out == 1);
  // Step 2 and the last two; none over the gap.
  CHECK(cycles.steps == std::map<int, std::size_t>{{0, 3}, {1, 3}});
  CHECK(cycles.all.size() == 6);
  for (const Cycle& cycle : cycles.all) CHECK(cycle.recorded == 100e3);
}

TEST_CASE("Cycles: passes without reduction belong to the step that reduces") {
  TraceText text;
  for (const int rank : {0, 1}) {
    add_step(text, rank, 0, 0);
    text.add(rank, "step", 100, 200, "step", "\"step\":1");
    text.add(rank, "forward", 100, 130);
    text.add(rank, "backward", 130, 200);
    add_step(text, rank, 2, 200);
  }
  const Cycles cycles = text.cycles();
  REQUIRE(cycles.all.size() == 2);
  CHECK(cycles.all[0].computing == 180e3);
  CHECK(cycles.all[0].backward == 140e3);
}

TEST_CASE("Cycles: where devices were recorded their times count, and not the host's") {
  TraceText text;
  for (int step = 0; step < 6; ++step) {
    const int rank = step % 2;
    add_step(text, rank, step / 2, 100 * (step / 2));
    const double begin = 100 * (step / 2) + 1000;
    text.add(rank, "device", begin, begin + 80, "backward");
    text.bucket(rank, 0, 0, begin + 10, begin + 30, "device");
    text.bucket(rank, 1, 0, begin + 40, begin + 80, "device");
    text.add(rank, "device", begin + 50, begin + 80, "wait for gradients");
  }
  const Cycles cycles = text.cycles();
  CHECK(cycles.bucket_bytes == std::vector<std::int64_t>{1000, 2000});
  REQUIRE(cycles.all.size() == 4);
  CHECK(cycles.all[0].computing == 70e3);
  CHECK(cycles.all[0].backward == 20e3);
  CHECK(cycles.all[0].ready == std::vector<double>{30e3, 60e3});
}

std::string refused(const TraceText& text, const std::string& tail = "]}") {
  try {
    text.cycles(tail);
  } catch (const TraceError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("Cycles: a file of which nothing can be predicted is refused with what is missing") {
  TraceText text;
  CHECK_THAT(refused(text), ContainsSubstring("expected at least two consecutive steps") &&
                                ContainsSubstring("got no complete backward that reduced buckets"));
  add_step(text, 0, 0, 0);
  CHECK_THAT(refused(text), ContainsSubstring("got 1 that reduced") && ContainsSubstring("record more steps"));
  add_step(text, 0, 7, 100);
  CHECK_THAT(refused(text), ContainsSubstring("got 2 that reduced"));
  CHECK_THAT(refused(text, ""),
             ContainsSubstring("got 2 that reduced") && Catch::Matchers::EndsWith("; the end of the file is cut off"));
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{8'000'000'000'000'000}}) {
    TraceText odd;
    for (int step = 0; step < 4; ++step) add_step(odd, step % 2, step / 2, 100 * (step / 2), bytes);
    CHECK_THAT(refused(odd), ContainsSubstring("expected buckets of 1 to 1e15 bytes in all, got "));
  }
}

TEST_CASE("Cycles: a file with the steps of only one rank is refused with its number") {
  TraceText text;
  for (int step = 0; step < 3; ++step) add_step(text, 5, step, 100 * step);
  const std::string only =
      "no prediction is possible: expected complete steps of at least two ranks, got those of rank 5 only";
  CHECK(refused(text) == only + "; join the files of all ranks by `ddprun-timeline merge`");
  text.add(0, "forward", 0, 10);
  CHECK(refused(text) == only + ", of 2 ranks in the file");
  CHECK(refused(text, "") == only + ", of 2 ranks in the file; the end of the file is cut off");
}

TEST_CASE("ForecastReport: the curve goes to 1024 ranks, and the best bucket size is named") {
  TraceText text;
  for (const int rank : {0, 1}) {
    for (int step = 0; step < 3; ++step) add_step(text, rank, step, 100 * step, 1'000'000);
  }
  const Cycles cycles = text.cycles();
  const Scenario scenario = parse_what_if("ranks=64,hosts=8,bandwidth=400Gbit,latency=5us");
  const std::string wide = forecast_text(cycles, scenario);
  CHECK_THAT(wide,
             ContainsSubstring(
                 "recorded: 2 ranks, 2 steps of 100 us (mean), of which computing 80.0 us; 2 buckets, 3000.0 kB"));
  for (const std::string row : {"  1      1 ", "  64     8 ", "  1024   128 "})
    CHECK_THAT(wide, ContainsSubstring(row));
  CHECK_THAT(wide, ContainsSubstring("for 64 ranks ") && ContainsSubstring(" would be best: a step of "));
  std::istringstream narrow(forecast_text(cycles, scenario, 40));
  for (std::string line; std::getline(narrow, line);) CHECK(line.size() <= 40);
  CHECK_THAT(forecast_json(cycles, scenario), ContainsSubstring("\"best_bucket_size\""));
}

Scenario eight_ranks() {
  return parse_what_if("ranks=8,bandwidth=1Gbit,latency=5us");
}

TEST_CASE("ForecastReport: steps are counted on each rank") {
  TraceText text;
  for (const int rank : {0, 1}) {
    for (int step = 0; step < 4 - rank; ++step) add_step(text, rank, step, 100 * step, step == 1 ? 5 : 1000);
  }
  text.add(2, "forward", 0, 10);
  const Cycles cycles = text.cycles();
  CHECK_THAT(forecast_text(cycles, eight_ranks()),
             ContainsSubstring("recorded: 2 of 3 ranks, 1 to 2 steps of 100 us") &&
                 ContainsSubstring("\n1 step with buckets of other sizes is left out\n"));
  const auto recorded = nlohmann::json::parse(forecast_json(cycles, eight_ranks()))["recorded"];
  CHECK(recorded["ranks"] == 2);
  CHECK(recorded["ranks_in_file"] == 3);
  CHECK(recorded["steps"] == 1);
  CHECK(recorded["most_steps"] == 2);
  CHECK(recorded["steps_left_out"] == 1);
}

TEST_CASE("ForecastReport: a file that is cut off or lost events is called so") {
  TraceText text;
  for (const int rank : {0, 1}) {
    for (int step = 0; step < 3; ++step) add_step(text, rank, step, 100 * step);
  }
  const Cycles whole = text.cycles();
  CHECK_THAT(forecast_text(whole, eight_ranks()), !ContainsSubstring("cut off") && !ContainsSubstring("lost"));
  const Cycles cut = text.cycles("");
  CHECK_THAT(forecast_text(cut, eight_ranks()), ContainsSubstring("2 buckets, 3000 bytes; the end is cut off\n"));
  const Cycles lossy = text.cycles(R"(],"ddprun":{"lost_events":{"0":3,"1":4}}})");
  CHECK_THAT(forecast_text(lossy, eight_ranks()),
             ContainsSubstring("\n7 events were lost: what follows may be wrong\n"));
  const auto recorded = [](const Cycles& cycles) {
    return nlohmann::json::parse(forecast_json(cycles, eight_ranks()))["recorded"];
  };
  CHECK(recorded(whole)["cut_off"] == false);
  CHECK(recorded(cut)["cut_off"] == true);
  CHECK(recorded(whole)["lost_events"] == 0);
  CHECK(recorded(lossy)["lost_events"] == 7);
}

}  // namespace
}  // namespace ddp::timelines
