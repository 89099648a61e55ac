// What schedules refuse, and what their states survive. Values are compared with Python's in schedules_test.py.
#include <stdexcept>

#include <ddprun/schedules/schedule.h>

#include "tests/schedules/refused.h"
#include "tests/support/catch.h"

namespace ddp::schedules {
namespace {

using test::refused;

TEST_CASE("Schedule: options out of range give Python's message and the rank") {
  refused([] { linear({.start_factor = 0}); },
          "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
  refused([] { linear({.end_factor = 1.5}); }, "Ending multiplicative factor expected to be between 0 and 1.");
  refused([] { linear({.total_iters = 0}); }, "total_iters, but got 0");
  refused([] { constant({.factor = 1.1}); }, "Constant multiplicative factor expected to be between 0 and 1.");
  refused([] { cosine({.t_max = 0}); }, "T_max, but got 0");
  refused([] { cosine_warm_restarts({.t_0 = 0}); }, "Expected positive integer T_0, but got 0");
  refused([] { cosine_warm_restarts({.t_0 = 1, .t_mult = 0}); }, "Expected integer T_mult >= 1, but got 0");
  refused([] { polynomial({.total_iters = 0}); }, "total_iters, but got 0");
  refused([] { step({.step_size = 0}); }, "step_size, but got 0");
  refused([] { one_cycle({.max_lr = {1}, .total_steps = 0}); }, "Expected positive integer total_steps, but got 0");
  refused([] { one_cycle({.max_lr = {1}, .total_steps = 9, .pct_start = 2}); },
          "Expected float between 0 and 1 pct_start, but got 2.0");
  refused([] { lambda(std::vector<Lambda>{}); }, "got 0");
  refused([] { lambda(Lambda{}); }, "lr_lambda should be a function");
  refused([] { linear_warmup(10, 0); }, "world size");
  refused([] { sequential({}, {}); }, "SequentialLR expects at least one scheduler, but got no scheduler.");
  refused(
      [] {
        sequential({linear(), linear()}, {});
      },
      "got number of schedulers 2 and the number of milestones to be equal to 0");
  refused([] { sequential({linear(), linear(), linear()}, {9, 3}); }, "milestones must increase");
  refused([] { sequential({linear(), chained({linear()})}, {9}); }, "the schedule at index 1");
  refused([] { chained({}); }, "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.");
}

TEST_CASE("Schedule: groups that do not fit are refused") {
  Groups two = {{.lr = 1}, {.lr = 2}};
  refused(
      [&] {
        lambda({[](int64_t) { return 1.0; }, [](int64_t) { return 1.0; }, [](int64_t) { return 1.0; }}).start(two);
      },
      "Expected 2 lr_lambdas, but got 3");
  refused([&] { one_cycle({.max_lr = {1, 2, 3}, .total_steps = 9}).start(two); }, "max_lr must have the same length");
  refused([&] { one_cycle({.max_lr = {1}, .total_steps = 9}).start(two); },
          "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
  auto schedule = exponential({.gamma = 0.5});
  schedule.start(two);
  two.push_back({.lr = 3});
  refused([&] { schedule.step(two); }, "2 parameter groups, but there are 3");
}

TEST_CASE("Schedule: a one cycle ends with its last step") {
  Groups groups = {{.lr = 1}};
  auto schedule = one_cycle({.max_lr = {1}, .total_steps = 3, .cycle_momentum = false});
  schedule.start(groups);
  for (int i = 0; i < 3; ++i) schedule.step(groups);
  const double last = groups[0].lr;
  refused([&] { schedule.step(groups); }, "Tried to step 4 times. The specified number of total steps is 3");
  CHECK(groups[0].lr == last);
}

TEST_CASE("Schedule: a copy goes on by itself") {
  Groups groups = {{.lr = 1}};
  auto schedule = exponential({.gamma = 0.5});
  schedule.start(groups);
  auto copy = schedule;
  Groups copied = groups;
  schedule.step(groups);
  schedule.step(groups);
  copy.step(copied);
  CHECK(groups[0].lr == 0.25);
  CHECK(copied[0].lr == 0.5);
}

// Three sequences deep: at the beginning the inner parts are as many steps back as there are sequences around them.
Schedule nested() {
  return sequential(
      {chained({sequential({sequential({linear(), exponential({.gamma = 0.9})}, {4}),
                            cosine_warm_restarts({.t_0 = 3, .t_mult = 2}), polynomial({.total_iters = 9})},
                           {9, 14}),
                step({.step_size = 4})}),
       one_cycle({.max_lr = {0.5}, .total_steps = 40}), cosine({.t_max = 20})},
      {19, 27});
}

TEST_CASE("Schedule: sequences within sequences resume at every step") {
  constexpr int kSteps = 40;
  for (int saved_at = 0; saved_at < kSteps; ++saved_at) {
    Groups groups = {{.lr = 0.1, .momentum = 0.9}, {.lr = 0.02, .momentum = 0.9}};
    Groups fresh_groups = groups;
    auto schedule = nested();
    schedule.start(groups);
    for (int i = 0; i < saved_at; ++i) schedule.step(groups);
    auto started = nested(), not_started = nested();
    started.start(fresh_groups);
    started.load(schedule.save());
    not_started.load(schedule.save());
    Groups after = groups, after_too = groups;
    for (int i = saved_at; i < kSteps; ++i) {
      schedule.step(groups);
      started.step(after);
      not_started.step(after_too);
      for (size_t k = 0; k < groups.size(); ++k) {
        UNSCOPED_INFO("saved at " << saved_at << ", step " << i);
        REQUIRE(after[k].lr == groups[k].lr);
        UNSCOPED_INFO("saved at " << saved_at << ", step " << i);
        REQUIRE(after[k].momentum == groups[k].momentum);
        INFO("saved at " << saved_at << ", step " << i);
        REQUIRE(after_too[k].lr == groups[k].lr);
      }
    }
    CHECK(started.save() == schedule.save());
  }
}

TEST_CASE("Schedule: states of another number of groups or further back than the sequences are refused") {
  Groups one = {{.lr = 1}}, two = {{.lr = 1}, {.lr = 2}};
  auto schedule = exponential({.gamma = 0.5});
  auto other = schedule;
  schedule.start(one);
  other.start(two);
  refused([&] { schedule.load(other.save()); }, "started with 1 parameter groups, the state with 2");
  auto sequence = sequential({linear(), linear()}, {5});
  sequence.start(one);
  auto state = sequence.save();
  const auto back = state.find(R"("last_epoch":-1)");
  REQUIRE(back != std::string::npos);
  sequence.load(state);
  state.replace(back, 15, R"("last_epoch":-2)");
  refused([&] { sequence.load(state); }, "has a negative number of steps");
}

TEST_CASE("Schedule: damaged states are refused and change nothing") {
  Groups groups = {{.lr = 1}};
  auto schedule = sequential({linear({.total_iters = 2}), cosine({.t_max = 9})}, {2});
  schedule.start(groups);
  schedule.step(groups);
  const auto state = schedule.save();
  auto later = schedule;
  Groups later_groups = groups;
  later.step(later_groups);
  for (
      const auto* bad :
      {"", "{", "[]", "null", R"({"type":"SequentialLR"})",
       R"({"type":"SequentialLR","last_epoch":-3,"_schedulers":[]})",
       R"({"type":"SequentialLR","last_epoch":1,"_schedulers":[1,2]})",
       R"({"type":"SequentialLR","last_epoch":1,"_schedulers":[{"type":"LinearLR","last_epoch":1,"_step_count":1,"base_lrs":[1]},{"type":"StepLR"}]})",
       R"({"type":"ChainedScheduler","_schedulers":[]})"}) {
    INFO(bad);
    CHECK_THROWS_AS(later.load(bad), std::invalid_argument);
  }
  CHECK(later.save() != state);
  later.load(state);
  CHECK(later.save() == state);
}

}  // namespace
}  // namespace ddp::schedules
