// Whose a state is, what progress it has, and which counts are none.
#include "schedules/python_state.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/schedules/schedule.h>

#include "tests/schedules/refused.h"
#include "tests/support/catch.h"

namespace ddp::schedules {
namespace {

using nlohmann::json;
using test::refused;

std::vector<Schedule> one_of_each() {
  const Lambda half = [](int64_t) { return 0.5; };
  std::vector<Schedule> all{lambda(half),
                            multiplicative(half),
                            step({.step_size = 3}),
                            multi_step({.milestones = {2}}),
                            constant(),
                            linear(),
                            exponential({.gamma = 0.5}),
                            polynomial(),
                            cosine({.t_max = 4}),
                            cosine_warm_restarts({.t_0 = 4}),
                            one_cycle({.max_lr = {1}, .total_steps = 100}),
                            cyclic({.base_lr = {0.1}, .max_lr = {1}}),
                            sequential({linear(), step({.step_size = 3})}, {2}),
                            chained({linear(), step({.step_size = 3})})};
  return all;
}

Groups new_groups() {
  return {{.lr = 1, .momentum = 0.9}, {.lr = 0.5, .momentum = 0.9}};
}

TEST_CASE("PythonState: a schedule takes its own states and no other's") {
  auto schedules = one_of_each();
  Plateau plateau;
  for (size_t i = 0; i < schedules.size(); ++i) {
    auto groups = new_groups();
    schedules[i].start(groups);
    schedules[i].step(groups);
    const auto state = schedules[i].save();
    for (size_t k = 0; k < schedules.size(); ++k) {
      CAPTURE(state, k);
      auto other = one_of_each()[k];
      if (i == k) {
        other.load(state);
        CHECK(other.save() == state);
      } else {
        refused([&] { other.load(state); }, "the state is of ");
      }
    }
    refused([&] { plateau.load(state); }, "the schedule is ReduceLROnPlateau");
  }
}

TEST_CASE("PythonState: a state without a type is known by its class's own key") {
  struct Case {
    std::string name;
    std::string keys;
  };
  const auto [name, keys] = GENERATE(values<Case>({
      {"ReduceLROnPlateau", R"("factor":0.1,"patience":3,"mode":"min")"},
      {"SequentialLR", R"("_milestones":[3],"_schedulers":[])"},
      {"ChainedScheduler", R"("_schedulers":[])"},
      {"CosineAnnealingWarmRestarts", R"("T_0":3,"T_i":3,"T_mult":1,"eta_min":0,"T_cur":1)"},
      {"CosineAnnealingLR", R"("T_max":3,"eta_min":0)"},
      {"OneCycleLR", R"("total_steps":3,"_schedule_phases":[])"},
      {"CyclicLR", R"("max_lrs":[1],"total_size":9,"step_ratio":0.5,"mode":"triangular","gamma":1)"},
      {"MultiStepLR", R"("milestones":{"3":1},"gamma":0.1)"},
      {"StepLR", R"("step_size":3,"gamma":0.1)"},
      {"LinearLR", R"("start_factor":0.5,"end_factor":1,"total_iters":3)"},
      {"PolynomialLR", R"("total_iters":3,"power":1)"},
      {"ConstantLR", R"("factor":0.5,"total_iters":3)"},
      {"ExponentialLR", R"("gamma":0.5)"},
      {"LambdaLR", R"("lr_lambdas":[null])"},
  }));
  const auto state = json::parse("{" + keys + R"(,"base_lrs":[1],"last_epoch":1})");
  CAPTURE(keys);
  CHECK_NOTHROW(require_type(state, name));
  if (name == "LambdaLR") CHECK_NOTHROW(require_type(state, "MultiplicativeLR"));
  const std::string message = "the state is of " + name + ", the schedule is SWALR";
  refused([&] { require_type(state, "SWALR"); }, message.c_str());
  refused([&] { require_type(json{{"base_lrs", {1}}}, name); }, "the state is of an unknown schedule");
}

TEST_CASE("PythonState: progress is the outermost count and the innermost initial rates") {
  const json inner = {{"base_lrs", {0.5, 2}}, {"last_epoch", 7}, {"_last_lr", {9, 9}}};
  const json chain = {{"_schedulers", {inner, inner}}, {"_last_lr", {0.1, 0.2}}};
  const json sequence = {
      {"_schedulers", {chain, inner}}, {"_milestones", {3}}, {"last_epoch", 4}, {"_last_lr", {0.3, 0.4}}};
  using Rates = std::vector<double>;
  CHECK(python_progress(inner).last_epoch == 7);
  CHECK(python_progress(inner).last_lrs == Rates{9, 9});
  CHECK(python_progress(chain).last_epoch == 7);
  CHECK(python_progress(chain).last_lrs == Rates{0.1, 0.2});
  CHECK(python_progress(chain).initial_lrs == Rates{0.5, 2});
  CHECK(python_progress(sequence).last_epoch == 4);
  CHECK(python_progress(sequence).last_lrs == Rates{0.3, 0.4});
  CHECK(python_progress(sequence).initial_lrs == Rates{0.5, 2});
  for (const auto* bad :
       {"{}", R"({"_schedulers":[]})", R"({"_schedulers":3})", R"({"_schedulers":[{"base_lrs":[1]}]})",
        R"({"base_lrs":[1],"last_epoch":2})", R"({"base_lrs":1,"last_epoch":2,"_last_lr":[1]})",
        R"({"base_lrs":[null],"last_epoch":2,"_last_lr":[1]})"}) {
    INFO(bad);
    CHECK_THROWS_AS(python_progress(json::parse(bad)), json::exception);
  }
}

TEST_CASE("PythonState: a count is a whole number that one can count on from") {
  struct Case {
    const char* text;
    int64_t count;
  };
  for (const auto& [text, count] : {Case{"0", 0},
                                    {"-3", -3},
                                    {"7.0", 7},
                                    {"-0.0", 0},
                                    {"1e3", 1000},
                                    {"4611686018427387904", kMaxSteps},
                                    {"-4611686018427387904", -kMaxSteps}}) {
    INFO(text);
    CHECK(step_count_at(json{{"n", json::parse(text)}}, "n") == count);
  }
  for (const auto* bad : {"0.5", "-2.25", "1e300", "-1e300", "9223372036854775807", "-9223372036854775808",
                          "18446744073709551615", "1e19", "true"}) {
    INFO(bad);
    const auto message = std::string("n must be a whole number of steps, but is ") + json::parse(bad).dump();
    refused([&] { step_count_at(json{{"n", json::parse(bad)}}, "n"); }, message.c_str());
  }
  for (const auto* bad : {"null", "[]", R"("3")", "{}"}) {
    INFO(bad);
    CHECK_THROWS_AS(step_count_at(json{{"n", json::parse(bad)}}, "n"), json::exception);
  }
  CHECK_THROWS_AS(step_count_at(json::object(), "n"), json::exception);
}

// Every number of a state, by its path.
void collect_numbers(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>& found) {
  if (value.is_number()) found.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, part] : value.items()) collect_numbers(part, at / key, found);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) collect_numbers(value[i], at / i, found);
  }
}

TEST_CASE("PythonState: a state with any number replaced is refused or gone on with") {
  const std::vector<json> numbers{0,          -1,   -1000,   0.5, 1e300, -1e300,    INT64_MAX,  INT64_MIN,
                                  UINT64_MAX, true, nullptr, "1", 1e18,  kMaxSteps, -kMaxSteps, json::array()};
  int refusals = 0, taken = 0;
  for (const auto& original : one_of_each()) {
    auto schedule = original;
    auto groups = new_groups();
    schedule.start(groups);
    for (int i = 0; i < 5; ++i) schedule.step(groups);
    const auto state = schedule.save();
    std::vector<json::json_pointer> places;
    collect_numbers(json::parse(state), json::json_pointer(), places);
    REQUIRE(places.size() >= 4);
    for (const auto& place : places) {
      for (const auto& number : numbers) {
        auto damaged = json::parse(state);
        damaged[place] = number;
        CAPTURE(damaged.dump());
        auto resumed = schedule;
        auto rates = groups;
        try {
          resumed.load(damaged.dump());
        } catch (const std::invalid_argument&) {
          ++refusals;
          CHECK(resumed.save() == state);
          continue;
        }
        ++taken;
        try {
          for (int i = 0; i < 3; ++i) resumed.step(rates);
        } catch (const std::invalid_argument&) {
          // a one cycle that has come to its end, or a power that is not finite
        }
      }
    }
  }
  CHECK(refusals > 300);
  CHECK(taken > 100);
}

}  // namespace
}  // namespace ddp::schedules
