// Prints what schedules do to two parameter groups, as JSON: {case: {"python": …, "lr": [[…], […]], "momentum": …}}.
// "python" makes the same scheduler of torch.optim.lr_scheduler for the optimizer o; python_lists.py runs it.
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

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
  void add(const std::string& name, const std::string& python, Schedule schedule) {
    lists_[name]["python"] = python;
    auto groups = new_groups();
    schedule.start(groups);
    record(name, groups);
    for (int i = 0; i < kSteps; ++i) {
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

  void add_plateau(const std::string& name, const std::string& python, const PlateauOptions& options) {
    lists_[name]["python"] = "ReduceLROnPlateau(o, " + python + ")";
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
  lists.add("lambda", "LambdaLR(o, decay)", lambda(decay));
  lists.add("lambda_per_group", "LambdaLR(o, [decay, hyperbola])", lambda({decay, hyperbola}));
  lists.add("multiplicative", "MultiplicativeLR(o, drops)", multiplicative(drops));
  lists.add("step", "StepLR(o, 7, 0.5)", step({.step_size = 7, .gamma = 0.5}));
  lists.add("multi_step", "MultiStepLR(o, [3, 8, 8, 20, 150], 0.3)",
            multi_step({.milestones = {3, 8, 8, 20, 150}, .gamma = 0.3}));
  lists.add("constant", "ConstantLR(o, 0.25, 12)", constant({.factor = 0.25, .total_iters = 12}));
  lists.add("linear", "LinearLR(o, 0.1, 0.8, 37)", linear({.start_factor = 0.1, .end_factor = 0.8, .total_iters = 37}));
  lists.add("linear_warmup", "LinearLR(o, 1 / 8, 1.0, 40)", linear_warmup(40, 8));
  lists.add("exponential", "ExponentialLR(o, 0.97)", exponential({.gamma = 0.97}));
  lists.add("polynomial", "PolynomialLR(o, 60, 2.0)", polynomial({.total_iters = 60, .power = 2.0}));
  lists.add("polynomial_root", "PolynomialLR(o, 150, 0.5)", polynomial({.total_iters = 150, .power = 0.5}));
  lists.add("cosine", "CosineAnnealingLR(o, 50, 0.001)", cosine({.t_max = 50, .eta_min = 0.001}));
  lists.add("cosine_long", "CosineAnnealingLR(o, 200)", cosine({.t_max = 200}));
  lists.add("cosine_short", "CosineAnnealingLR(o, 1)", cosine({.t_max = 1}));
  lists.add("cosine_warm_restarts", "CosineAnnealingWarmRestarts(o, 10, 2, 0.0005)",
            cosine_warm_restarts({.t_0 = 10, .t_mult = 2, .eta_min = 0.0005}));
  lists.add("cosine_warm_restarts_equal", "CosineAnnealingWarmRestarts(o, 30)", cosine_warm_restarts({.t_0 = 30}));
  lists.add("one_cycle", "OneCycleLR(o, [0.5, 0.1], 200)", one_cycle({.max_lr = {0.5, 0.1}, .total_steps = 200}));
  lists.add("one_cycle_three_phases",
            "OneCycleLR(o, 0.4, 201, pct_start=0.2, anneal_strategy='linear', base_momentum=0.7, max_momentum=0.99, "
            "div_factor=10, final_div_factor=100, three_phase=True)",
            one_cycle({.max_lr = {0.4},
                       .total_steps = 201,
                       .pct_start = 0.2,
                       .anneal_strategy = Anneal::kLinear,
                       .base_momentum = {0.7},
                       .max_momentum = {0.99},
                       .div_factor = 10,
                       .final_div_factor = 100,
                       .three_phase = true}));
  lists.add("one_cycle_without_momentum", "OneCycleLR(o, 0.4, 210, cycle_momentum=False)",
            one_cycle({.max_lr = {0.4}, .total_steps = 210, .cycle_momentum = false}));
  lists.add("cyclic", "CyclicLR(o, [0.01, 0.02], 0.3, 20)",
            cyclic({.base_lr = {0.01, 0.02}, .max_lr = {0.3}, .step_size_up = 20}));
  lists.add("cyclic_halved",
            "CyclicLR(o, 0.01, [0.3, 0.2], 7, 30, 'triangular2', base_momentum=0.7, max_momentum=0.95)",
            cyclic({.base_lr = {0.01},
                    .max_lr = {0.3, 0.2},
                    .step_size_up = 7,
                    .step_size_down = 30,
                    .mode = CyclicMode::kTriangular2,
                    .base_momentum = {0.7},
                    .max_momentum = {0.95}}));
  lists.add("cyclic_shrinking", "CyclicLR(o, 0.01, 0.3, 13, mode='exp_range', gamma=0.98, cycle_momentum=False)",
            cyclic({.base_lr = {0.01},
                    .max_lr = {0.3},
                    .step_size_up = 13,
                    .mode = CyclicMode::kExpRange,
                    .gamma = 0.98,
                    .cycle_momentum = false}));
  lists.add("cyclic_with_a_function", "CyclicLR(o, 0.01, 0.3, 13, 4, scale_fn=hyperbola, scale_mode='iterations')",
            cyclic({.base_lr = {0.01},
                    .max_lr = {0.3},
                    .step_size_up = 13,
                    .step_size_down = 4,
                    .scale_fn = [](double step) { return 1.0 / (1.0 + step); },
                    .scale_mode = CyclicScale::kIterations}));
  lists.add("swa", "SWALR(o, [0.05, 0.3], 30)", swa({.swa_lr = {0.05, 0.3}, .anneal_epochs = 30}));
  lists.add("swa_linear", "SWALR(o, 0.05, 150, 'linear')",
            swa({.swa_lr = {0.05}, .anneal_epochs = 150, .anneal_strategy = Anneal::kLinear}));
  lists.add("cosine_and_swa", "SequentialLR(o, [CosineAnnealingLR(o, 100), SWALR(o, 0.05, 20)], [75])",
            sequential({cosine({.t_max = 100}), swa({.swa_lr = {0.05}, .anneal_epochs = 20})}, {75}));
  lists.add("warmup_and_cycles",
            "SequentialLR(o, [LinearLR(o, 0.1, total_iters=10), CyclicLR(o, 0.02, 0.2, 15)], [10])",
            sequential({linear({.start_factor = 0.1, .total_iters = 10}),
                        cyclic({.base_lr = {0.02}, .max_lr = {0.2}, .step_size_up = 15})},
                       {10}));
  lists.add("warmup_and_cosine", "SequentialLR(o, [LinearLR(o, 0.1, total_iters=10), CosineAnnealingLR(o, 190)], [10])",
            sequential({linear({.start_factor = 0.1, .total_iters = 10}), cosine({.t_max = 190})}, {10}));
  lists.add("sequential_of_five",
            "SequentialLR(o, [ConstantLR(o, 0.1, 8), ExponentialLR(o, 0.9), MultiStepLR(o, [5, 9]), PolynomialLR(o, "
            "40), CosineAnnealingWarmRestarts(o, 7, 2)], [10, 30, 70, 120])",
            sequential({constant({.factor = 0.1, .total_iters = 8}), exponential({.gamma = 0.9}),
                        multi_step({.milestones = {5, 9}}), polynomial({.total_iters = 40}),
                        cosine_warm_restarts({.t_0 = 7, .t_mult = 2})},
                       {10, 30, 70, 120}));
  lists.add("sequential_of_others",
            "SequentialLR(o, [StepLR(o, 3), LambdaLR(o, decay), CosineAnnealingLR(o, 20), LinearLR(o), "
            "MultiplicativeLR(o, drops)], [20, 50, 90, 160])",
            sequential({step({.step_size = 3}), lambda(decay), cosine({.t_max = 20}), linear(), multiplicative(drops)},
                       {20, 50, 90, 160}));
  lists.add("chained",
            "ChainedScheduler([ConstantLR(o, 0.1, 5), ExponentialLR(o, 0.98), MultiStepLR(o, [50, 100])], o)",
            chained({constant({.factor = 0.1, .total_iters = 5}), exponential({.gamma = 0.98}),
                     multi_step({.milestones = {50, 100}})}));
  lists.add(
      "chained_then_exponential",
      "SequentialLR(o, [ChainedScheduler([LinearLR(o, total_iters=20), ExponentialLR(o, 0.99)], o), ExponentialLR(o, "
      "0.95)], [60])",
      sequential({chained({linear({.total_iters = 20}), exponential({.gamma = 0.99})}), exponential({.gamma = 0.95})},
                 {60}));
  lists.add(
      "sequence_in_a_sequence",
      "SequentialLR(o, [SequentialLR(o, [LinearLR(o), ExponentialLR(o, 0.97)], [6]), CosineAnnealingLR(o, 80)], [40])",
      sequential({sequential({linear(), exponential({.gamma = 0.97})}, {6}), cosine({.t_max = 80})}, {40}));

  lists.add_plateau("plateau", "patience=4", {.patience = 4});
  lists.add_plateau("plateau_max", "mode='max', factor=0.5, patience=7, cooldown=3",
                    {.mode = PlateauMode::kMax, .factor = 0.5, .patience = 7, .cooldown = 3});
  lists.add_plateau("plateau_absolute",
                    "factor=0.6, patience=2, threshold=0.05, threshold_mode='abs', min_lr=[1e-4, 5e-3]",
                    {.factor = 0.6,
                     .patience = 2,
                     .threshold = 0.05,
                     .threshold_mode = ThresholdMode::kAbsolute,
                     .min_lr = {1e-4, 5e-3}});
  lists.add_plateau("plateau_max_absolute",
                    "mode='max', factor=0.9, patience=1, threshold=0.001, threshold_mode='abs', cooldown=1, eps=1e-3",
                    {.mode = PlateauMode::kMax,
                     .factor = 0.9,
                     .patience = 1,
                     .threshold = 0.001,
                     .threshold_mode = ThresholdMode::kAbsolute,
                     .cooldown = 1,
                     .eps = 1e-3});
  lists.print();
  return 0;
}
