// Schedules that are computed step by step against what their names promise at any step.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/schedules/schedule.h>

#include "tests/schedules/refused.h"
#include "tests/support/catch.h"

namespace ddp::schedules {
namespace {

using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
using test::refused;

constexpr int kClosedFormSteps = 120;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

struct Form {
  std::string name;
  Schedule schedule;
  std::function<double(double base, int64_t step)> rate;
};

std::vector<Form> draw_forms(std::mt19937& generator) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(generator); };
  const auto whole = [&](int64_t low, int64_t high) { return std::uniform_int_distribution(low, high)(generator); };
  const double gamma = uniform(0.9, 1.05), start = uniform(0.05, 1), end = uniform(0, 1), eta_min = uniform(0, 0.05);
  const int64_t total = whole(1, 100), size = whole(1, 30), mult = whole(1, 3);
  const double power = uniform(0.2, 3);
  std::vector<int64_t> milestones;
  for (int64_t i = whole(0, 5); i > 0; --i) milestones.push_back(whole(1, 100));
  const auto cosine_at = [eta_min](double base, double share) {
    return eta_min + (base - eta_min) * (1 + std::cos(std::numbers::pi * share)) / 2;
  };
  std::vector<Form> forms;
  forms.push_back({"exponential", exponential({.gamma = gamma}),
                   [=](double base, int64_t step) { return base * std::pow(gamma, step); }});
  forms.push_back({"step", step({.step_size = size, .gamma = gamma}),
                   [=](double base, int64_t step) { return base * std::pow(gamma, step / size); }});
  forms.push_back(
      {"multi_step", multi_step({.milestones = milestones, .gamma = gamma}), [=](double base, int64_t step) {
         const auto passed = std::ranges::count_if(milestones, [=](int64_t m) { return m <= step; });
         return base * std::pow(gamma, passed);
       }});
  forms.push_back({"constant", constant({.factor = start, .total_iters = total}),
                   [=](double base, int64_t step) { return step < total ? base * start : base; }});
  forms.push_back({"linear", linear({.start_factor = start, .end_factor = end, .total_iters = total}),
                   [=](double base, int64_t step) {
                     const auto share = static_cast<double>(std::min(step, total)) / static_cast<double>(total);
                     return base * (start + (end - start) * share);
                   }});
  forms.push_back({"polynomial", polynomial({.total_iters = total, .power = power}), [=](double base, int64_t step) {
                     const auto share = static_cast<double>(std::min(step, total)) / static_cast<double>(total);
                     return base * std::pow(1 - share, power);
                   }});
  forms.push_back({"cosine", cosine({.t_max = total, .eta_min = eta_min}), [=](double base, int64_t step) {
                     return cosine_at(base, static_cast<double>(step) / static_cast<double>(total));
                   }});
  forms.push_back({"cosine_warm_restarts", cosine_warm_restarts({.t_0 = size, .t_mult = mult, .eta_min = eta_min}),
                   [=](double base, int64_t step) {
                     int64_t period = size;
                     for (; step >= period; period *= mult) step -= period;
                     return cosine_at(base, static_cast<double>(step) / static_cast<double>(period));
                   }});
  return forms;
}

TEST_CASE("Schedule: step by step it comes to what its closed form says, for every group") {
  std::mt19937 generator(18);
  for (int round = 0; round < 40; ++round) {
    for (auto& [name, schedule, rate] : draw_forms(generator)) {
      Groups groups = {{.lr = 0.4}, {.lr = 0.07}, {.lr = 2}};
      const Groups initial = groups;
      schedule.start(groups);
      for (int64_t step = 0; step <= kClosedFormSteps; ++step) {
        if (step > 0) schedule.step(groups);
        for (size_t i = 0; i < groups.size(); ++i) {
          CAPTURE(name, round, step, i);
          REQUIRE_THAT(groups[i].lr,
                       WithinRel(rate(initial[i].lr, step), 1e-9) || WithinAbs(rate(initial[i].lr, step), 1e-9));
        }
      }
    }
  }
}

TEST_CASE("Schedule: a one cycle goes from its start over the top to its end, momentum the other way") {
  const bool three_phase = GENERATE(false, true);
  const auto strategy = GENERATE(Anneal::kCosine, Anneal::kLinear);
  const OneCycleOptions options{.max_lr = {0.8},
                                .total_steps = 100,
                                .pct_start = 0.25,
                                .anneal_strategy = strategy,
                                .base_momentum = {0.6},
                                .max_momentum = {0.9},
                                .div_factor = 8,
                                .final_div_factor = 100,
                                .three_phase = three_phase};
  auto schedule = one_cycle(options);
  Groups groups = {{.lr = 3, .momentum = 0.1}};
  schedule.start(groups);
  CHECK_THAT(groups[0].lr, WithinRel(0.1, 1e-12));
  CHECK_THAT(*groups[0].momentum, WithinRel(0.9, 1e-12));
  double before = groups[0].lr, momentum_before = *groups[0].momentum, top = 0;
  for (int step = 1; step <= 99; ++step) {
    schedule.step(groups);
    CAPTURE(step, three_phase);
    const bool rises = step <= 24;
    CHECK((groups[0].lr > before) == rises);
    // In the last of three phases it stays.
    if (!three_phase || step <= 48) CHECK((*groups[0].momentum < momentum_before) == rises);
    top = std::max(top, groups[0].lr);
    before = groups[0].lr;
    momentum_before = *groups[0].momentum;
  }
  CHECK_THAT(top, WithinRel(0.8, 1e-12));
  CHECK_THAT(groups[0].lr, WithinRel(0.001, 1e-9));
  CHECK_THAT(*groups[0].momentum, WithinRel(0.9, 1e-9));
}

TEST_CASE("Schedule: a triangle comes back every cycle, and half as high where that is asked for") {
  const int64_t up = GENERATE(1, 3, 8), down = GENERATE(1, 5);
  for (const auto mode : {CyclicMode::kTriangular, CyclicMode::kTriangular2}) {
    auto schedule = cyclic({.base_lr = {0.25},
                            .max_lr = {1.25},
                            .step_size_up = up,
                            .step_size_down = down,
                            .mode = mode,
                            .base_momentum = {0.5},
                            .max_momentum = {0.75}});
    Groups groups = {{.lr = 9, .momentum = 0.9}};
    schedule.start(groups);
    for (int64_t step = 0; step <= kClosedFormSteps; ++step) {
      if (step > 0) schedule.step(groups);
      const auto cycle = step / (up + down), within = step % (up + down);
      double height = within <= up ? static_cast<double>(within) / static_cast<double>(up)
                                   : static_cast<double>(up + down - within) / static_cast<double>(down);
      if (mode == CyclicMode::kTriangular2) height = std::ldexp(height, -static_cast<int>(cycle));
      CAPTURE(up, down, step);
      REQUIRE_THAT(groups[0].lr, WithinAbs(0.25 + height, 1e-10));
      REQUIRE_THAT(*groups[0].momentum, WithinAbs(0.75 - 0.25 * height, 1e-10));
    }
  }
}

TEST_CASE("Schedule: a warm-up leads from one rank's rate to all ranks' in equal steps") {
  const int world_size = GENERATE(1, 2, 7, 64);
  const int64_t steps = GENERATE(1, 10);
  auto schedule = linear_warmup(steps, world_size);
  Groups groups = {{.lr = 0.3 * world_size}};
  schedule.start(groups);
  for (int64_t step = 0; step <= steps + 3; ++step) {
    if (step > 0) schedule.step(groups);
    const double share = std::min(1.0, static_cast<double>(step) / static_cast<double>(steps));
    CAPTURE(world_size, step);
    CHECK_THAT(groups[0].lr, WithinRel(0.3 + 0.3 * (world_size - 1) * share, 1e-12));
  }
}

TEST_CASE("Schedule: halves of a cosine that nobody lives to see end stay where they are") {
  for (const int64_t long_time : {int64_t{1} << 40, kHuge / 2, kHuge / 2 + 1, kHuge - 1, kHuge}) {
    for (auto schedule : {cosine({.t_max = long_time}), cosine_warm_restarts({.t_0 = long_time}),
                          cosine_warm_restarts({.t_0 = 1, .t_mult = long_time})}) {
      Groups groups = {{.lr = 0.5}};
      schedule.start(groups);
      for (int i = 0; i < 9; ++i) schedule.step(groups);
      CAPTURE(long_time, schedule.save());
      CHECK_THAT(groups[0].lr, WithinRel(0.5, 1e-9));
      auto resumed = schedule;
      resumed.load(schedule.save());
      CHECK(resumed.save() == schedule.save());
    }
  }
}

// Python ends with a division by zero there.
TEST_CASE("Schedule: the lowest point of a very long cosine is passed with a finite rate") {
  constexpr int64_t kLong = 1'000'000'000;
  auto schedule = cosine({.t_max = kLong, .eta_min = 0.125});
  Groups groups = {{.lr = 0.5}};
  schedule.start(groups);
  schedule.load(R"({"type":"CosineAnnealingLR","last_epoch":999999990,"_step_count":999999991,"base_lrs":[0.5]})");
  groups[0].lr = 0.125;
  for (int i = 0; i < 20; ++i) {
    schedule.step(groups);
    CAPTURE(i);
    CHECK_THAT(groups[0].lr, WithinAbs(0.125, 1e-9));
  }
}

TEST_CASE("Schedule: a factor without a finite power is refused as in Python") {
  Groups groups = {{.lr = 1, .momentum = 0.9}};
  auto falling = polynomial({.total_iters = 3, .power = -1});
  falling.start(groups);
  falling.step(groups);
  falling.step(groups);
  CHECK_THAT(groups[0].lr, WithinRel(3.0, 1e-12));
  refused([&] { falling.step(groups); }, "0.0 ** -1.0 is not a finite number");
  auto jumping = multi_step({.milestones = {1, 1}, .gamma = 1e200});
  jumping.start(groups);
  refused([&] { jumping.step(groups); }, "1e+200 ** 2.0 is not a finite number");
  auto growing =
      cyclic({.base_lr = {0.1}, .max_lr = {1}, .step_size_up = 4, .mode = CyclicMode::kExpRange, .gamma = 1e200});
  growing.start(groups);
  growing.step(groups);
  refused([&] { growing.step(groups); }, "1e+200 ** 2.0 is not a finite number");
}

TEST_CASE("Schedule: bounds of a momentum that is not cycled need not fit the groups") {
  const std::vector<double> three{0.1, 0.2, 0.3};
  Groups groups = {{.lr = 1}, {.lr = 2}};
  auto up_and_down = cyclic({.base_lr = {0.1},
                             .max_lr = {1},
                             .step_size_up = 2,
                             .cycle_momentum = false,
                             .base_momentum = three,
                             .max_momentum = three});
  up_and_down.start(groups);
  up_and_down.step(groups);
  CHECK_THAT(groups[1].lr, WithinRel(0.55, 1e-12));
  auto once = one_cycle(
      {.max_lr = {1}, .total_steps = 5, .cycle_momentum = false, .base_momentum = three, .max_momentum = three});
  once.start(groups);
  CHECK_THAT(groups[1].lr, WithinRel(0.04, 1e-12));
  CHECK_FALSE(groups[1].momentum.has_value());
}

}  // namespace
}  // namespace ddp::schedules
