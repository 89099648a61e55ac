// Builds the schedules that nested_test.py, edge_test.py and random_test.py have made, and resumes each of them at
// every step:
//
//     nested_program CASES
//
// CASES is a JSON list of {"schedule": …, "steps": n}, where a case may also have
//   "groups": [{"lr": …, "momentum": …}, …], one without momentum being of an optimizer that has none;
//   "edits": {step: [lr, …]}, which a program sets by hand before that step;
//   "resume": {"at": step, "state": …, "groups": …}, with which it begins, the state being any that load() takes.
// Prints, as a JSON list, what each case's groups and state were at every step up to an error, the error or null, and
// at which steps a resumed schedule went another way.
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/schedules/schedule.h>

namespace {

using namespace ddp::schedules;
using nlohmann::json;

Groups groups_of(const json& list) {
  Groups groups;
  for (const auto& group : list) {
    groups.push_back({.lr = group.at("lr")});
    if (group.contains("momentum")) groups.back().momentum = group.at("momentum").get<double>();
  }
  return groups;
}

Groups new_groups(const json& test) {
  if (test.contains("groups")) return groups_of(test.at("groups"));
  return {{.lr = 0.1, .momentum = 0.9}, {.lr = 0.02, .momentum = 0.9}};
}

// One for all groups, or a list with one for each.
std::vector<double> numbers(const json& options, const char* name, double otherwise = 0) {
  if (!options.contains(name)) return {otherwise};
  const auto& value = options.at(name);
  return value.is_array() ? value.get<std::vector<double>>() : std::vector{value.get<double>()};
}

std::vector<Lambda> lambdas(const json& options) {
  std::vector<Lambda> result;
  for (const auto& each : options.at("lr_lambda")) {
    const double base = each.at("base"), slope = each.at("slope");
    result.emplace_back([base, slope](int64_t step) {
      return std::pow(base, static_cast<double>(step)) / (1.0 + slope * static_cast<double>(step));
    });
  }
  return result;
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
    return cyclic({.base_lr = numbers(o, "base_lr"),
                   .max_lr = numbers(o, "max_lr"),
                   .step_size_up = o.at("step_size_up"),
                   .step_size_down =
                       o.contains("step_size_down") ? o.at("step_size_down").get<int64_t>() : std::optional<int64_t>{},
                   .mode = o.at("mode") == "triangular"    ? CyclicMode::kTriangular
                           : o.at("mode") == "triangular2" ? CyclicMode::kTriangular2
                                                           : CyclicMode::kExpRange,
                   .gamma = o.value("gamma", 1.0),
                   .cycle_momentum = o.value("cycle_momentum", true),
                   .base_momentum = numbers(o, "base_momentum", 0.8),
                   .max_momentum = numbers(o, "max_momentum", 0.9)});
  }
  if (type == "SWALR") {
    return swa({.swa_lr = numbers(o, "swa_lr"),
                .anneal_epochs = o.at("anneal_epochs"),
                .anneal_strategy = o.at("anneal_strategy") == "cos" ? Anneal::kCosine : Anneal::kLinear});
  }
  if (type == "OneCycleLR") {
    return one_cycle({.max_lr = numbers(o, "max_lr"),
                      .total_steps = o.at("total_steps"),
                      .pct_start = o.value("pct_start", 0.3),
                      .anneal_strategy = o.value("anneal_strategy", "cos") == "cos" ? Anneal::kCosine : Anneal::kLinear,
                      .cycle_momentum = o.value("cycle_momentum", true),
                      .base_momentum = numbers(o, "base_momentum", 0.85),
                      .max_momentum = numbers(o, "max_momentum", 0.95),
                      .div_factor = o.value("div_factor", 25.0),
                      .final_div_factor = o.value("final_div_factor", 1e4),
                      .three_phase = o.value("three_phase", false)});
  }
  if (type == "LambdaLR") return lambda(lambdas(o));
  if (type == "MultiplicativeLR") return multiplicative(lambdas(o));
  throw std::invalid_argument("no schedule " + type);
}

json as_json(const Groups& groups) {
  json result = {{"lr", json::array()}, {"momentum", json::array()}};
  for (const auto& group : groups) {
    result["lr"].push_back(group.lr);
    result["momentum"].push_back(group.momentum ? json(*group.momentum) : json(nullptr));
  }
  return result;
}

// What a program sets by hand before step `i`.
void edit(const json& test, int i, Groups& groups) {
  if (!test.contains("edits") || !test["edits"].contains(std::to_string(i))) return;
  const auto& rates = test["edits"][std::to_string(i)];
  for (size_t k = 0; k < groups.size(); ++k) groups[k].lr = rates.at(k);
}

// The groups and the state at each step of a program that is not interrupted, or goes on with a state of another
// program, appended to `steps`.
void run(const json& test, json& steps) {
  auto schedule = make(test.at("schedule"));
  auto groups = new_groups(test);
  schedule.start(groups);
  int first = 0;
  if (test.contains("resume")) {
    const auto& resume = test.at("resume");
    schedule.load(resume.at("state").dump());
    groups = groups_of(resume.at("groups"));
    first = resume.at("at");
  }
  for (int i = first; i <= test.at("steps").get<int>(); ++i) {
    if (i > first) {
      edit(test, i, groups);
      schedule.step(groups);
    }
    steps.push_back(as_json(groups));
    steps.back()["state"] = json::parse(schedule.save());
    steps.back()["saved"] = schedule.save();
  }
}

// What was wrong when a program took over the state of step `at`; empty when nothing was.
std::string fault_after_resuming(const json& test, const json& steps, size_t at) {
  auto schedule = make(test.at("schedule"));
  auto groups = new_groups(test);
  schedule.start(groups);
  try {
    schedule.load(steps[at]["saved"].get<std::string>());
  } catch (const std::exception& error) {
    return error.what();
  }
  for (size_t k = 0; k < groups.size(); ++k) groups[k].lr = steps[at]["lr"][k];
  for (size_t k = 0; k < groups.size(); ++k) {
    if (groups[k].momentum) groups[k].momentum = steps[at]["momentum"][k].get<double>();
  }
  for (size_t i = at + 1; i < steps.size(); ++i) {
    edit(test, static_cast<int>(i), groups);
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
    for (size_t at = 0; !test.contains("resume") && at < result["steps"].size(); ++at) {
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
