// Builds the schedules that nested_test.py and edge_test.py have made, and resumes each of them at every step:
//
//     nested_program CASES
//
// CASES is a JSON list of {"schedule": …, "steps": n}; prints, as a JSON list, what each case's groups and state were
// at every step up to an error, the error or null, and at which steps a resumed schedule went another way.
#include <nlohmann/json.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/schedules/schedule.h>

namespace {

using namespace ddp::schedules;
using nlohmann::json;

Groups new_groups() {
  return {{.lr = 0.1, .momentum = 0.9}, {.lr = 0.02, .momentum = 0.9}};
}

Schedule make(const json& spec) {
  const auto type = spec.at("type").get<std::string>();
  if (type == "SequentialLR" || type == "ChainedScheduler") {
    std::vector<Schedule> parts;
    for (const auto& part : spec.at("parts")) parts.push_back(make(part));
    if (type == "ChainedScheduler") return chained(std::move(parts));
    return sequential(std::move(parts), spec.at("milestones").get<std::vector<int64_t>>());
  }
  const auto& o = spec.at("options");
  if (type == "LinearLR") {
    return linear(
        {.start_factor = o.at("start_factor"), .end_factor = o.at("end_factor"), .total_iters = o.at("total_iters")});
  }
  if (type == "ConstantLR") return constant({.factor = o.at("factor"), .total_iters = o.at("total_iters")});
  if (type == "ExponentialLR") return exponential({.gamma = o.at("gamma")});
  if (type == "PolynomialLR") return polynomial({.total_iters = o.at("total_iters"), .power = o.at("power")});
  if (type == "StepLR") return step({.step_size = o.at("step_size"), .gamma = o.at("gamma")});
  if (type == "MultiStepLR") {
    return multi_step({.milestones = o.at("milestones").get<std::vector<int64_t>>(), .gamma = o.at("gamma")});
  }
  if (type == "CosineAnnealingLR") return cosine({.t_max = o.at("T_max"), .eta_min = o.at("eta_min")});
  if (type == "CosineAnnealingWarmRestarts") {
    return cosine_warm_restarts({.t_0 = o.at("T_0"), .t_mult = o.at("T_mult"), .eta_min = o.at("eta_min")});
  }
  if (type == "CyclicLR") {
    return cyclic({.base_lr = {o.at("base_lr").get<double>()},
                   .max_lr = {o.at("max_lr").get<double>()},
                   .step_size_up = o.at("step_size_up"),
                   .step_size_down = o.at("step_size_down").get<int64_t>(),
                   .mode = o.at("mode") == "triangular"    ? CyclicMode::kTriangular
                           : o.at("mode") == "triangular2" ? CyclicMode::kTriangular2
                                                           : CyclicMode::kExpRange,
                   .gamma = o.value("gamma", 1.0)});
  }
  if (type == "OneCycleLR") {
    return one_cycle({.max_lr = {o.at("max_lr").get<double>()},
                      .total_steps = o.at("total_steps"),
                      .pct_start = o.value("pct_start", 0.3),
                      .anneal_strategy = o.value("anneal_strategy", "cos") == "cos" ? Anneal::kCosine : Anneal::kLinear,
                      .div_factor = o.value("div_factor", 25.0),
                      .final_div_factor = o.value("final_div_factor", 1e4),
                      .three_phase = o.value("three_phase", false)});
  }
  throw std::invalid_argument("no schedule " + type);
}

json as_json(const Groups& groups) {
  json result = {{"lr", json::array()}, {"momentum", json::array()}};
  for (const auto& group : groups) {
    result["lr"].push_back(group.lr);
    result["momentum"].push_back(*group.momentum);
  }
  return result;
}

// The groups and the state at each step of a program that is not interrupted, appended to `steps`.
void run(const json& test, json& steps) {
  auto schedule = make(test.at("schedule"));
  auto groups = new_groups();
  schedule.start(groups);
  for (int i = 0; i <= test.at("steps").get<int>(); ++i) {
    if (i > 0) schedule.step(groups);
    steps.push_back(as_json(groups));
    steps.back()["state"] = json::parse(schedule.save());
    steps.back()["saved"] = schedule.save();
  }
}

// What was wrong when a program took over the state of step `at`; empty when nothing was.
std::string fault_after_resuming(const json& test, const json& steps, size_t at) {
  auto schedule = make(test.at("schedule"));
  auto groups = new_groups();
  schedule.start(groups);
  try {
    schedule.load(steps[at]["saved"].get<std::string>());
  } catch (const std::exception& error) {
    return error.what();
  }
  for (size_t k = 0; k < groups.size(); ++k) groups[k].lr = steps[at]["lr"][k];
  for (size_t k = 0; k < groups.size(); ++k) groups[k].momentum = steps[at]["momentum"][k];
  for (size_t i = at + 1; i < steps.size(); ++i) {
    schedule.step(groups);
    const auto now = as_json(groups);
    if (now["lr"] != steps[i]["lr"] || now["momentum"] != steps[i]["momentum"]) {
      return "other values at step " + std::to_string(i);
    }
    if (schedule.save() != steps[i]["saved"]) return "another state at step " + std::to_string(i);
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::invalid_argument("1 argument is needed");
  std::ifstream file(argv[1]);
  auto results = json::array();
  for (const auto& test : json::parse(file)) {
    json result = {{"steps", json::array()}, {"error", nullptr}, {"faults", json::object()}};
    try {
      run(test, result["steps"]);
    } catch (const std::invalid_argument& error) {
      result["error"] = error.what();
    }
    for (size_t at = 0; at < result["steps"].size(); ++at) {
      const auto fault = fault_after_resuming(test, result["steps"], at);
      if (!fault.empty()) result["faults"][std::to_string(at)] = fault;
    }
    results.push_back(std::move(result));
  }
  std::puts(results.dump().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
