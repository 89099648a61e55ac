// What the timeline and the progress page show of a fully sharded model.
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/progress/own_page.h"
#include "ddprun/base/timeline.h"
#include "ddprun/fsdp/fully_shard.h"
#include "tests/fsdp/nets.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using nlohmann::json;
using test::Block;
using test::Net;
using test::placed;
using test::run_ranks;
using test::words;

json events_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return json::parse(stream).at("traceEvents");
}

// How often each slice is there.
std::map<std::string, int> slices_of(const json& events) {
  std::map<std::string, int> counts;
  for (const json& event : events) {
    if (event.at("ph") == "X" && event.at("cat") != "device") ++counts[event.at("name").get<std::string>()];
  }
  return counts;
}

// The values of a curve, in order.
std::vector<double> curve_of(const json& events, const std::string& name) {
  std::vector<std::pair<double, double>> points;
  for (const json& event : events) {
    if (event.at("ph") != "C" || event.at("name") != name) continue;
    points.emplace_back(event.at("ts").get<double>(), event.at("args").begin()->get<double>());
  }
  std::ranges::stable_sort(points, {}, [](const auto& point) { return point.first; });
  std::vector<double> values;
  for (const auto& [time, value] : points) values.push_back(value);
  return values;
}

// The ranks are threads of one process, so one of them trains.
TEST_CASE("Trace: forwards, backwards and each unit's bytes are in the timeline") {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "trace.json";
  run_ranks(1, [&](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group, {.units = {each<Block>()}});
    const Timeline recorded(file);
    model(words(group.rank(), 0)).sum().backward();
    {
      const at::NoGradGuard no_grad;
      model(words(group.rank(), 1));
    }
    model->reshard();
  });
  const json events = events_of(file);
  std::map<std::string, int> slices = slices_of(events);
  CHECK(slices["forward"] >= 1);
  CHECK(slices["backward"] >= 1);
  CHECK(slices["evaluation"] >= 1);
  CHECK(slices["wait for parameters of unit first"] == 3);  // two forwards and a backward
  CHECK(slices["wait for parameters of unit the root"] == 2);
  const double first = (7 * 5 + 7 + 7 * 7 + 7) * 4;
  const double root = (11 * 5 + 2 * 3 + 2) * 4;
  CHECK(curve_of(events, "gathered bytes of unit first") == std::vector<double>{first, 0, first, 0, first, 0});
  CHECK(curve_of(events, "gathered bytes of unit the root") == std::vector<double>{root, 0, root, 0});
  const std::vector<double> all = curve_of(events, "gathered bytes");
  CHECK(all.back() == 0);
  CHECK(*std::ranges::max_element(all) <= root + first + (3 * 7 + 3 + 3 * 3 + 3) * 4);
}

TEST_CASE("Trace: the waits for gathers and reductions have the names of units") {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "trace.json";
  {
    const Timeline recorded(file);
    run_ranks(2, [&](const GroupHandle& group) {
      auto model = fully_shard(placed(Net()), group, {.units = {each<Block>()}});
      model(words(group.rank(), 0)).sum().backward();
    });
  }
  std::map<std::string, int> counts;
  const std::map<std::string, std::string> starts{{"wait for parameters of unit second", "waits for parameters"},
                                                  {"wait for gradients of unit second", "waits for gradients"}};
  for (const json& event : events_of(file)) {
    if (event.at("ph") != "X") continue;
    for (const auto& [start, what] : starts) {
      if (event.at("name").get<std::string>().starts_with(start)) ++counts[what];
    }
  }
  // Of two ranks, the parameters in forward and backward.
  CHECK(counts["waits for parameters"] >= 4);
  CHECK(counts["waits for gradients"] >= 2);
}

TEST_CASE("Trace: the progress page has the phases") {
  run_ranks(1, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group);
    const auto phase = [] {
      return static_cast<progress::Phase>(detail::kind_of(detail::own_page().page().phase.load()));
    };
    const at::Tensor loss = model(words(group.rank(), 0)).sum();
    RANK_CHECK(phase() == progress::Phase::kForward);
    loss.backward();
    RANK_CHECK(phase() == progress::Phase::kOther);
    const at::NoGradGuard no_grad;
    model(words(group.rank(), 0));
    RANK_CHECK(phase() == progress::Phase::kOther);
  });
}

}  // namespace
}  // namespace ddp
