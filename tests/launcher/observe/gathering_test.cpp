#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/observe/gathering/hang_gathering.h"
#include "launcher/observe/gathering/view_json.h"
#include "launcher/os/system/event_loop.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Phase = ddp::progress::Phase;
using nlohmann::json;

constexpr std::uint64_t kGathered = 1'000'000'000;

RankView view_of(int rank, int size, bool is_missing) {
  ddp::detail::ProgressSnapshot progress{.step = 812,
                                         .phase = is_missing ? Phase::kData : Phase::kBackward,
                                         .phase_name = is_missing ? "data" : "backward",
                                         .phase_since = kGathered - 121'000'000,
                                         .groups = {{.path = "", .rank = rank, .size = size, .leader = 0}},
                                         .collectives_begun = 5};
  for (std::uint64_t i = 0; i < (is_missing ? 4U : 5U); ++i) {
    progress.collectives.push_back({.index = i, .number = i, .signature = "barrier", .begin = kGathered - 121'000'000});
    if (i < 4) progress.collectives.back().end = kGathered - 120'000'000;
  }
  return {.rank = rank,
          .host = "host" + std::to_string(rank),
          .pid = 100 + rank,
          .progress = progress,
          .process = ProcessState{.state = 'S', .waits_in = "futex"},
          .idle_us = 121'000'000,
          .unchanged_us = 122'000'000,
          .cpu_share = 0.5,
          .python = PythonPlace{.call = "all_reduce", .line = "main (train.py:3)"}};
}

TEST_CASE("View JSON: a rank arrives as it was seen, by the clock of who reads it") {
  const RankView sent = view_of(3, 4, false);
  const json text = json::parse(json_of(sent, kGathered, 40).dump());
  const auto read = view_from(text, kGathered / 2);
  REQUIRE(read);
  CHECK(read->rank == 3);
  CHECK(read->host == "host3");
  CHECK(read->process->state == 'S');
  CHECK(read->process->waits_in == "futex");
  CHECK(read->idle_us == sent.idle_us);
  CHECK(read->unchanged_us == sent.unchanged_us);
  CHECK(read->python->is_same(*sent.python));
  CHECK(read->progress->phase_since == kGathered / 2 - 121'000'000);
  CHECK(read->progress->phase_name == "backward");
  REQUIRE(read->progress->collectives.size() == 5);
  CHECK(read->progress->collectives[4].is_open());
  CHECK_FALSE(read->progress->collectives[3].is_open());
  CHECK(read->progress->groups[0].size == 4);
}

TEST_CASE("View JSON: of many collectives the last ones travel, and those that are open") {
  RankView view = view_of(0, 2, false);
  view.progress->collectives.front().end.reset();
  const auto read = view_from(json_of(view, kGathered, 2), kGathered);
  REQUIRE(read->progress->collectives.size() == 3);
  CHECK(read->progress->collectives.front().number == 0);
  CHECK(read->progress->collectives.front().is_open());
}

TEST_CASE("View JSON: what is no rank is not read") {
  const json good = json_of(view_of(0, 2, false), kGathered, 40);
  REQUIRE(view_from(good, kGathered));
  for (const auto& item : good.items()) {
    json bad = good;
    bad[item.key()] = json::array({1});
    CHECK_FALSE(view_from(bad, kGathered));
  }
  json outside = good;
  outside["progress"]["calls"][0]["g"] = 7;
  CHECK(view_from(outside, kGathered)->progress->collectives.size() == 4);
  CHECK_FALSE(view_from(json(5), kGathered));
}

TEST_CASE("View JSON: samples arrive as they were taken") {
  RankSample sample{.rank = 5,
                    .host = "b",
                    .totals = {.process = 7, .steps = 99, .time = 12345},
                    .delays = {.run_delay_us = 1, .throttled_us = 2, .major_faults = 3, .disk_us = 4, .cpus = 8},
                    .gpu = GpuState{.clock_mhz = 1700, .celsius = 60, .limits = 4}};
  sample.totals.spent[3] = 17;
  sample.totals.waited[4] = 18;
  sample.totals.named["warm-up"] = {.spent = 19, .waited = 5};
  const auto read = sample_from(json::parse(json_of(sample).dump()));
  REQUIRE(read);
  CHECK(read->totals.spent == sample.totals.spent);
  CHECK(read->totals.waited == sample.totals.waited);
  CHECK(read->totals.steps == 99);
  CHECK(read->totals.named.at("warm-up").spent == 19);
  CHECK(read->totals.named.at("warm-up").waited == 5);
  CHECK(read->delays.throttled_us == 2);
  CHECK(read->delays.cpus == 8);
  CHECK(read->gpu->clock_mhz == 1700);
  json bad = json_of(sample);
  bad["spent"] = json::array({1, 2});
  CHECK_FALSE(sample_from(bad));
}

// Nodes whose words go from one to the other at once, unless they are frozen.
class Nodes {
 public:
  explicit Nodes(int size) {
    for (int node = 0; node < size; ++node) {
      frozen.push_back(false);
      said.emplace_back();
      nodes_.push_back(std::make_unique<HangGathering>(
          loop,
          HangGatheringOptions{.node = node,
                               .nodes = size,
                               .send_text =
                                   [this, node](int to, std::string text) {
                                     queue_.push_back({node, to, std::move(text)});
                                   },
                               .views = [this, node] { return views[static_cast<std::size_t>(node)]; },
                               .on_report = [this, node](const HangReport& report) { tell(node, "report", &report); },
                               .on_progress = [this, node] { tell(node, "progress"); },
                               .on_no_reply = [this, node] { tell(node, "silence"); }}));
    }
    views.resize(static_cast<std::size_t>(size));
  }
  HangGathering& operator[](int node) { return *nodes_[static_cast<std::size_t>(node)]; }
  void run_until_said(int node) {
    while (said[static_cast<std::size_t>(node)].empty()) {
      deliver();
      if (said[static_cast<std::size_t>(node)].empty()) loop.run_once();
    }
    deliver();
  }

  EventLoop loop;
  std::function<void(int to, const json& word)> delivered = [](int, const json&) {};
  std::vector<bool> frozen;
  std::vector<std::vector<std::string>> said;
  std::vector<HangReport> reports;
  std::vector<std::vector<RankView>> views;

 private:
  struct Word {
    int from;
    int to;
    std::string text;
  };
  void tell(int node, const std::string& what, const HangReport* report = nullptr) {
    said[static_cast<std::size_t>(node)].push_back(what);
    if (report != nullptr) reports.push_back(*report);
  }
  void deliver() {
    while (!queue_.empty()) {
      const Word word = queue_.front();
      queue_.erase(queue_.begin());
      if (frozen[static_cast<std::size_t>(word.to)]) continue;
      (*this)[word.to].on_message(word.from, json::parse(word.text));
      delivered(word.to, json::parse(word.text));
    }
  }
  std::vector<std::unique_ptr<HangGathering>> nodes_;
  std::vector<Word> queue_;
};

TEST_CASE("Hang gathering: whoever asks, all nodes learn the same, and node 0 sees all ranks") {
  for (const int asking : {0, 1, 2}) {
    Nodes nodes(3);
    for (int node = 0; node < 3; ++node) nodes.views[static_cast<std::size_t>(node)] = {view_of(node, 3, node == 2)};
    nodes[asking].ask(120s);
    nodes.run_until_said(2);
    REQUIRE(nodes.reports.size() == 3);
    for (const HangReport& report : nodes.reports) {
      CHECK(report.verdict.culprits == std::vector{2});
      CHECK_THAT(report.verdict.sentence, ContainsSubstring("rank 2 has not entered barrier #4"));
      CHECK(report.idle == 121s);
    }
    CHECK(nodes.reports[0].views.size() == 3);
    CHECK(nodes.reports[1].views.empty());
    CHECK(nodes.reports[1].is_shown_elsewhere);
  }
}

TEST_CASE("Hang gathering: a node that asks while the verdict is on its way takes nothing from the report") {
  Nodes nodes(3);
  for (int node = 0; node < 3; ++node) nodes.views[static_cast<std::size_t>(node)] = {view_of(node, 3, node == 2)};
  bool has_asked = false;
  nodes.delivered = [&](int to, const json& word) {
    if (to == 2 && word.at("hang") == "look" && !std::exchange(has_asked, true)) nodes[1].ask(120s);
  };
  nodes[0].ask(120s);
  nodes.run_until_said(0);
  CHECK(nodes.reports.front().views.size() == 3);
}

TEST_CASE("Hang gathering: where ranks of another node make progress nothing is reported") {
  Nodes nodes(2);
  nodes.views = {{view_of(0, 2, true)}, {view_of(1, 2, false)}};
  nodes.views[0][0].idle_us = nodes.views[0][0].unchanged_us = 10'000;
  nodes[1].ask(120s);
  nodes.run_until_said(1);
  CHECK(nodes.said[1] == std::vector<std::string>{"progress"});
  CHECK(nodes.reports.empty());
}

TEST_CASE("Hang gathering: a rank that only loops on another node does not vouch for those that wait") {
  Nodes nodes(2);
  nodes.views = {{view_of(0, 2, true)}, {view_of(1, 2, false)}};
  nodes.views[0][0].idle_us = 0;
  nodes[1].ask(120s);
  nodes.run_until_said(1);
  REQUIRE(nodes.reports.size() == 2);
  CHECK(nodes.reports[0].verdict.culprits == std::vector{0});
}

TEST_CASE("Hang gathering: where all ranks compute nothing is reported") {
  Nodes nodes(2);
  nodes.views = {{view_of(0, 2, true)}, {view_of(1, 2, false)}};
  for (auto& views : nodes.views) views[0].idle_us = 0;
  nodes[1].ask(120s);
  nodes.run_until_said(1);
  CHECK(nodes.reports.empty());
}

TEST_CASE("Hang gathering: a node that does not answer is left out, and named") {
  Nodes nodes(3);
  for (int node = 0; node < 3; ++node) nodes.views[static_cast<std::size_t>(node)] = {view_of(node, 3, node == 1)};
  nodes.frozen[2] = true;
  nodes[0].ask(120s);
  nodes.run_until_said(0);
  REQUIRE(nodes.reports.size() == 2);
  CHECK_THAT(nodes.reports[0].verdict.sentence, ContainsSubstring("rank 1 has not entered barrier #4"));
  CHECK_THAT(nodes.reports[0].verdict.sentence, ContainsSubstring("; node 2 did not report its ranks"));
}

TEST_CASE("Hang gathering: without node 0 a node is told that nobody can be asked, and may ask again") {
  Nodes nodes(2);
  nodes.views = {{view_of(0, 2, true)}, {view_of(1, 2, false)}};
  nodes.frozen[0] = true;
  nodes[1].ask(120s);
  nodes.run_until_said(1);
  CHECK(nodes.said[1] == std::vector<std::string>{"silence"});
  nodes.frozen[0] = false;
  nodes.said[1].clear();
  nodes[1].ask(120s);
  nodes.run_until_said(1);
  CHECK(nodes.said[1] == std::vector<std::string>{"report"});
}

TEST_CASE("Hang gathering: words of nobody's do no harm") {
  Nodes nodes(2);
  nodes.views = {{view_of(0, 2, true)}, {view_of(1, 2, false)}};
  for (const char* text :
       {R"({"hang":5})", R"({"hang":"look"})", R"({"hang":"verdict"})", R"({"hang":"verdict","sentence":1})",
        R"({"hang":"view","number":"x"})", R"({"hang":"stuck","timeout":-5})", R"({"hang":"seen"})"}) {
    CHECK(nodes[1].on_message(0, json::parse(text)));
  }
  CHECK_FALSE(nodes[1].on_message(0, json::parse(R"({"samples":[]})")));
  CHECK(nodes.reports.empty());
}

TEST_CASE("Sample exchange: node 0 has the last that each rank of other nodes has told") {
  std::vector<std::string> words;
  SampleExchange first(0, 2, [](int, std::string) {});
  SampleExchange second(1, 2, [&](int to, std::string text) {
    CHECK(to == 0);
    words.push_back(std::move(text));
  });
  std::vector<RankSample> samples;
  for (int rank = 2; rank < 40; ++rank) samples.push_back({.rank = rank, .totals = {.steps = 5}});
  second.send(samples);
  CHECK(words.size() == 3);
  for (const std::string& word : words) CHECK(first.on_message(1, json::parse(word)));
  CHECK(first.others().size() == 38);
  words.clear();
  second.send(samples);  // too soon
  CHECK(words.empty());
  CHECK_FALSE(first.on_message(1, json::parse(R"({"hang":"stuck"})")));
  CHECK(first.on_message(1, json::parse(R"({"samples":[5,{"rank":"x"}]})")));
  CHECK(first.others().size() == 38);
}

}  // namespace
}  // namespace launcher
