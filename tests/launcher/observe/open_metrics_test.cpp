#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

#include "launcher/observe/watch/status_document.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("OpenMetrics: what is not finite has the format's words, and names are UTF-8") {
  nlohmann::ordered_json rank{{"rank", 0}, {"host", "node"}, {"steps_per_second", nullptr}};
  rank["values"] = {{"loss", "nan"}, {"above", "inf"}, {"below", "-inf"}, {"known", 2.5}, {"a\xff\"b\n\u00e4", 1}};
  const std::string text = metrics_text({{"job", "cifar"}, {"ranks", {rank}}}, MetricsFormat::kOpenMetrics);
  const std::string labels = "ddprun_value{run=\"cifar\",rank=\"0\",host=\"node\",name=";
  CHECK_THAT(text, ContainsSubstring(labels + "\"loss\"} NaN\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"above\"} +Inf\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"below\"} -Inf\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"known\"} 2.5\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"a\uFFFD\\\"b\\n\u00e4\"} 1\n"));
  CHECK_THAT(text, !ContainsSubstring("ddprun_steps_per_second{"));  // not known yet
}

const nlohmann::ordered_json kHanging = {
    {"job", "cifar"},
    {"host", "node"},
    {"hang", {{"ranks", {1}}, {"seconds", 62.5}, {"message", "rank 1 has not entered"}}},
    {"ranks",
     {{{"rank", 0}, {"host", "node"}, {"step", 7}, {"holds_up", nullptr}},
      {{"rank", 1}, {"host", "node"}, {"step", 7}, {"holds_up", "rank 1 delays the others"}}}}};

TEST_CASE("OpenMetrics: a hang is a number of the job, and each rank says whether it is the cause") {
  const std::string text = metrics_text(kHanging, MetricsFormat::kOpenMetrics);
  CHECK_THAT(text, ContainsSubstring("\nddprun_hang{run=\"cifar\",host=\"node\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("\nddprun_hang_seconds{run=\"cifar\",host=\"node\"} 62.5\n"));
  CHECK_THAT(text, ContainsSubstring("\nddprun_hang_cause{run=\"cifar\",rank=\"0\",host=\"node\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("\nddprun_hang_cause{run=\"cifar\",rank=\"1\",host=\"node\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("\nddprun_straggler{run=\"cifar\",rank=\"0\",host=\"node\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("\nddprun_straggler{run=\"cifar\",rank=\"1\",host=\"node\"} 1\n"));
  auto over = kHanging;
  over["hang"] = nullptr;
  const std::string after = metrics_text(over, MetricsFormat::kText);
  CHECK_THAT(after, ContainsSubstring("\nddprun_hang{run=\"cifar\",host=\"node\"} 0\n"));
  CHECK_THAT(after, ContainsSubstring("\nddprun_hang_cause{run=\"cifar\",rank=\"1\",host=\"node\"} 0\n"));
}

TEST_CASE("OpenMetrics: families have units there, and counters their whole name in the text format") {
  const std::string open = metrics_text(kHanging, MetricsFormat::kOpenMetrics);
  CHECK_THAT(open, ContainsSubstring("# TYPE ddprun_steps counter\n# HELP ddprun_steps ") &&
                       ContainsSubstring("\nddprun_steps_total{run=\"cifar\",rank=\"1\",host=\"node\"} 7\n") &&
                       ContainsSubstring("# TYPE ddprun_phase_seconds counter\n# UNIT ddprun_phase_seconds seconds\n"));
  const std::string text = metrics_text(kHanging, MetricsFormat::kText);
  CHECK_THAT(text, ContainsSubstring(
                       "# HELP ddprun_steps_total Completed training steps.\n# TYPE ddprun_steps_total counter\n") &&
                       !ContainsSubstring("# UNIT") && !ContainsSubstring("# EOF"));
}

TEST_CASE("Findings: keep a hang until it ends, and the last delays") {
  const WallTime now{std::chrono::seconds(1'000'000)};
  Findings findings;
  findings.begin_hang({.verdict = {.kind = Verdict::Kind::kMissing, .culprits = {1}, .sentence = "rank 1 ..."},
                       .idle = std::chrono::seconds(120)},
                      now);
  CHECK(findings.hang()->since == now - std::chrono::seconds(120));
  findings.begin_delay(1, "first", now);
  for (int rank = 2; rank < 20; ++rank) findings.begin_delay(rank, "later", now);
  findings.end_delay(19, now);
  CHECK(findings.delays().size() == Findings::kMaxDelays);
  CHECK(findings.delays().front().end == now);
  CHECK_FALSE(findings.delays().back().end);

  const auto document = status_document({.job = "cifar", .findings = findings}, {}, 0, now + std::chrono::seconds(5));
  CHECK(document.at("hang").at("seconds") == 125.0);
  CHECK(document.at("hang").at("kind") == "missing");
  CHECK(document.at("stragglers").size() == Findings::kMaxDelays);
  findings.clear_hang();
  CHECK(status_document({.job = "cifar", .findings = findings}, {}, 0, now).at("hang").is_null());
  findings.begin_hang({}, now);
  findings.end_attempt(now);
  CHECK_FALSE(findings.hang());
  CHECK(findings.delays().back().end == now);
}

}  // namespace
}  // namespace launcher
