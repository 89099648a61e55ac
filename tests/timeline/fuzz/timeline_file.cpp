// A timeline's file.
#include <sstream>

#include "tests/fuzz/fuzz.h"
#include "timeline/analysis.h"
#include "timeline/forecast_report.h"
#include "timeline/report.h"
#include "timeline/svg.h"
#include "timeline/trace_reader.h"

std::vector<std::string> fuzz::seeds() {
  const std::string head = R"({"displayTimeUnit":"ms","otherData":{"writer":"ddprun timeline 1"},"traceEvents":[)";
  const std::string tail = "],\"ddprun\":{\"lost_events\":{\"0\":3}}}\n";
  const std::string step =
      R"({"ph":"X","pid":0,"tid":1000000000,"ts":0.5,"dur":9,"cat":"step","name":"step 1","args":{"step":1}})";
  const std::string forward = R"({"ph":"X","pid":0,"tid":7,"ts":1.5,"dur":2.25,"cat":"forward","name":"forward"})";
  const std::string wait = R"({"ph":"X","pid":1,"tid":7,"ts":-1,"dur":2,"cat":"wait","name":"w"})";
  const std::string bucket =
      R"({"ph":"X","pid":1,"tid":1000012000,"ts":1,"dur":2,"cat":"bucket","name":"b","args":{"index":0,"bytes":20,"started":1.5}})";
  const std::string call =
      R"({"ph":"X","pid":1,"tid":9,"ts":1,"dur":2,"cat":"collective","name":"c","args":{"number":0}})";
  const auto backward = [](int at) {  // of two ranks
    const std::string begin = std::to_string(at);
    std::string events;
    for (const std::string rank : {"0", "1"}) {
      events += std::string(events.empty() ? "" : ",") + R"({"ph":"X","pid":)" + rank +
                R"(,"tid":7,"dur":4,"cat":"backward","name":"backward","ts":)" + begin + R"(},{"ph":"X","pid":)" +
                rank + R"(,"tid":8,"dur":2,"cat":"bucket","name":"b","args":{"index":0,"bytes":20},"ts":)" + begin +
                "}";
    }
    return events;
  };
  return {head + step + "," + forward + tail,
          head + backward(1) + "," + backward(6) + "," + backward(12) + tail,
          head + step + "," + forward + "," + wait + "," + bucket + "," + call + tail,
          head + R"({"ph":"M","pid":0,"name":"process_name","args":{"name":"rank \u00e4"}})" + tail,
          head,
          "[]",
          head + R"({"ph":"X","pid":1e9,"tid":-1,"ts":1e300,"cat":"data"})" + tail};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  using namespace ddp::timelines;
  std::istringstream file{std::string(bytes)};
  Trace trace;
  try {
    trace = read_trace(file, {.events = 1000, .names = 100, .text = 1000});
  } catch (const TraceError&) {
    return Outcome::kRefused;
  }
  const auto lines = rank_lines(trace);
  const Analysis analysis = analyse(lines);
  for (const auto& [rank, overlap] : analysis.overlaps) {
    require(overlap.hidden <= overlap.communication, "no more is hidden than there is");
  }
  for (const StepSummary& step : analysis.steps) {
    for (const PathPart& part : step.path) require(part.begin < part.end, "a path goes on");
  }
  require(!report_text(trace, lines, analysis, 40).empty() && !report_json(trace, lines, analysis).empty(),
          "there is a report");
  try {
    const Cycles cycles = cycles_of(trace, lines);
    const Scenario scenario{
        .placement = {.ranks = 6, .hosts = 3},
        .network = {.between = {.bandwidth = 1e9, .latency = 5e3}, .within = {.bandwidth = 1e10, .latency = 1e3}}};
    for (const Prediction& each : Forecast(cycles).curve(scenario, 16)) {
      require(each.step >= each.computing && each.computing >= 0, "a step is not shorter than its computation");
    }
    require(!forecast_text(cycles, scenario, 40).empty() && !forecast_json(cycles, scenario).empty(),
            "there is a forecast");
  } catch (const TraceError&) {  // nothing can be predicted from it
  }
  require(draw_svg(trace, lines, analysis).ends_with("</svg>\n"), "there is a picture");
  return Outcome::kAccepted;
}
