#include "timeline/cycles.h"

#include <nlohmann/json.hpp>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "timeline/forecast_report.h"
#include "timeline/trace_reader.h"
#include "timeline/what_if.h"

namespace ddp::timelines {
namespace {

using Catch::Matchers::ContainsSubstring;

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

TEST_CASE("Cycles: the most common bucket sizes are those of cycles, and not those of the first step") {
  TraceText text;
  for (const int rank : {0, 1}) {
    add_step(text, rank, 0, 0, 5000);
    add_step(text, rank, 1, 100, 9000);
  }
  const Cycles cycles = text.cycles();
  CHECK(cycles.bucket_bytes == std::vector<std::int64_t>{9000, 18'000});
  CHECK(cycles.all.size() == 2);
  CHECK(cycles.left_out == 0);
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
  for (const int step : {0, 1}) add_step(text, 0, step, 1000 + 100 * step, 7);
  CHECK(refused(text) == only + ", of 2 ranks in the file; those of other ranks have buckets of other sizes");
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
