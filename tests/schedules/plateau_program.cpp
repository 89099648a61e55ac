// Takes the metrics that plateau_test.py has drawn: plateau_program CASES.
//
// CASES is a JSON list of {"options": …, "metrics": […]}, where a metric is a text, since JSON has neither NaN nor
// infinity. Prints, for each case, the groups' rates and the state after every metric. The state is saved and loaded
// into another object after each of them.
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/schedules/schedule.h>

namespace {

using namespace ddp::schedules;
using nlohmann::json;

PlateauOptions options_of(const json& o) {
  return {.mode = o.at("mode") == "min" ? PlateauMode::kMin : PlateauMode::kMax,
          .factor = o.at("factor"),
          .patience = o.at("patience"),
          .threshold = o.at("threshold"),
          .threshold_mode = o.at("threshold_mode") == "rel" ? ThresholdMode::kRelative : ThresholdMode::kAbsolute,
          .cooldown = o.at("cooldown"),
          .min_lr = o.at("min_lr").get<std::vector<double>>(),
          .eps = o.at("eps")};
}

json steps_of(const json& test) {
  const PlateauOptions options = options_of(test.at("options"));
  Plateau plateau(options);
  Groups groups{{.lr = 0.1}, {.lr = 0.02}};
  json steps = json::array();
  for (const auto& metric : test.at("metrics")) {
    plateau.step(std::strtod(metric.get<std::string>().c_str(), nullptr), groups);
    const std::string state = plateau.save();
    Plateau resumed(options);
    resumed.load(state);
    if (resumed.save() != state) throw std::runtime_error("another state after loading " + state);
    plateau = resumed;
    steps.push_back({{"lr", {groups[0].lr, groups[1].lr}}, {"state", json::parse(state)}});
  }
  return steps;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::invalid_argument("1 argument is needed");
  std::ifstream file(argv[1]);
  auto results = json::array();
  for (const auto& test : json::parse(file)) results.push_back(steps_of(test));
  std::puts(results.dump().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
