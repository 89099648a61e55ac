// Prints what each schedule of schedules_test.py does to two parameter groups, as JSON: {case: {"lr": [[…], […]], …}}.
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/schedules/plateau.h>
#include <ddprun/schedules/schedule.h>

namespace {

using namespace ddp::schedules;
using nlohmann::json;

constexpr int kSteps = 200;

Groups new_groups() {
  return {{.lr = 0.1, .momentum = 0.9}, {.lr = 0.02, .momentum = 0.9}};
}

class Lists {
 public:
  void add(const std::string& name, Schedule schedule, int steps = kSteps) {
    auto groups = new_groups();
    schedule.start(groups);
    record(name, groups);
    for (int i = 0; i < steps; ++i) {
      // A program that is interrupted: the next step is a new schedule's, with the state of the old one.
      if (i == 70) {
        const auto state = schedule.save();
        auto other_groups = new_groups();
        schedule.start(other_groups);
        schedule.load(state);
      }
      schedule.step(groups);
      record(name, groups);
    }
  }

  void add_plateau(const std::string& name, const PlateauOptions& options) {
    Plateau plateau(options);
    auto groups = new_groups();
    for (int i = 0; i < kSteps; ++i) {
      if (i == 70) {
        const auto state = plateau.save();
        plateau = Plateau(options);
        plateau.load(state);
      }
      plateau.step(std::exp(-i / 20.0) + 0.3 * std::fmod(i * 0.37, 1.0) + (i > 120 ? 0.01 * i : 0.0), groups);
      record(name, groups);
    }
  }

  void print() const { std::puts(lists_.dump().c_str()); }

 private:
  void record(const std::string& name, const Groups& groups) {
    for (size_t i = 0; i < groups.size(); ++i) {
      lists_[name]["lr"][i].push_back(groups[i].lr);
      lists_[name]["momentum"][i].push_back(*groups[i].momentum);
    }
  }

  json lists_ = json::object();
};

}  // namespace

int main() {
  Lists lists;
  const Lambda decay = [](int64_t step) { return std::pow(0.95, static_cast<double>(step)); };
  const Lambda hyperbola = [](int64_t step) { return 1.0 / (1.0 + static_cast<double>(step)); };
  const Lambda drops = [](int64_t step) { return step % 10 == 0 ? 0.5 : 0.99; };
  lists.add("lambda", lambda(decay));
  lists.add("lambda_per_group", lambda({decay, hyperbola}));
  lists.add("multiplicative", multiplicative(drops));
  lists.add("step", step({.step_size = 7, .gamma = 0.5}));
  lists.add("multi_step", multi_step({.milestones = {3, 8, 8, 20, 150}, .gamma = 0.3}));
  lists.add("constant", constant({.factor = 0.25, .total_iters = 12}));
  lists.add("linear", linear({.start_factor = 0.1, .end_factor = 0.8, .total_iters = 37}));
  lists.add("linear_warmup", linear_warmup(40, 8));
  lists.add("exponential", exponential({.gamma = 0.97}));
  lists.add("polynomial", polynomial({.total_iters = 60, .power = 2.0}));
  lists.add("polynomial_root", polynomial({.total_iters = 150, .power = 0.5}));
  lists.add("cosine", cosine({.t_max = 50, .eta_min = 0.001}));
  lists.add("cosine_long", cosine({.t_max = 200}));
  lists.add("cosine_short", cosine({.t_max = 1}));
  lists.add("cosine_warm_restarts", cosine_warm_restarts({.t_0 = 10, .t_mult = 2, .eta_min = 0.0005}));
  lists.add("cosine_warm_restarts_equal", cosine_warm_restarts({.t_0 = 30}));
  lists.add("one_cycle", one_cycle({.max_lr = {0.5, 0.1}, .total_steps = 200}));
  lists.add("one_cycle_three_phases", one_cycle({.max_lr = {0.4},
                                                 .total_steps = 201,
                                                 .pct_start = 0.2,
                                                 .anneal_strategy = Anneal::kLinear,
                                                 .base_momentum = {0.7},
                                                 .max_momentum = {0.99},
                                                 .div_factor = 10,
                                                 .final_div_factor = 100,
                                                 .three_phase = true}));
  lists.add("one_cycle_without_momentum", one_cycle({.max_lr = {0.4}, .total_steps = 210, .cycle_momentum = false}));
  lists.add("warmup_and_cosine",
            sequential({linear({.start_factor = 0.1, .total_iters = 10}), cosine({.t_max = 190})}, {10}));
  lists.add("sequential_of_five", sequential({constant({.factor = 0.1, .total_iters = 8}), exponential({.gamma = 0.9}),
                                              multi_step({.milestones = {5, 9}}), polynomial({.total_iters = 40}),
                                              cosine_warm_restarts({.t_0 = 7, .t_mult = 2})},
                                             {10, 30, 70, 120}));
  lists.add("sequential_of_others",
            sequential({step({.step_size = 3}), lambda(decay), cosine({.t_max = 20}), linear(), multiplicative(drops)},
                       {20, 50, 90, 160}));
  lists.add("chained", chained({constant({.factor = 0.1, .total_iters = 5}), exponential({.gamma = 0.98}),
                                multi_step({.milestones = {50, 100}})}));
  lists.add(
      "chained_then_exponential",
      sequential({chained({linear({.total_iters = 20}), exponential({.gamma = 0.99})}), exponential({.gamma = 0.95})},
                 {60}));
  lists.add("sequence_in_a_sequence",
            sequential({sequential({linear(), exponential({.gamma = 0.97})}, {6}), cosine({.t_max = 80})}, {40}));

  lists.add_plateau("plateau", {.patience = 4});
  lists.add_plateau("plateau_max", {.mode = PlateauMode::kMax, .factor = 0.5, .patience = 7, .cooldown = 3});
  lists.add_plateau("plateau_absolute", {.factor = 0.6,
                                         .patience = 2,
                                         .threshold = 0.05,
                                         .threshold_mode = ThresholdMode::kAbsolute,
                                         .min_lr = {1e-4, 5e-3}});
  lists.add_plateau("plateau_max_absolute", {.mode = PlateauMode::kMax,
                                             .factor = 0.9,
                                             .patience = 1,
                                             .threshold = 0.001,
                                             .threshold_mode = ThresholdMode::kAbsolute,
                                             .cooldown = 1,
                                             .eps = 1e-3});
  lists.print();
  return 0;
}
