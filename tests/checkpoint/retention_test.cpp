#include "checkpoint/core/retention.h"

#include <cmath>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::IsEmpty;
using test::ElementsAre;

const std::vector<RetainedStep> kSteps = {{.step = 100, .metrics = {{"loss", 0.5}, {"accuracy", 60}}},
                                          {.step = 200, .metrics = {{"loss", 0.3}, {"accuracy", 75}}},
                                          {.step = 300, .metrics = {{"loss", std::nan("")}}},
                                          {.step = 400, .metrics = {{"loss", 0.3}, {"accuracy", 70}}},
                                          {.step = 500}};

TEST_CASE("Retention: without a rule all stay") {
  CHECK_THAT(steps_to_remove(kSteps, {}), IsEmpty());
}

TEST_CASE("Retention: keep last keeps the newest") {
  CHECK_THAT(steps_to_remove(kSteps, {.keep_last = 2}), ElementsAre(100, 200, 300));
  CHECK_THAT(steps_to_remove(kSteps, {.keep_last = 9}), IsEmpty());
}

TEST_CASE("Retention: keep every keeps multiples and the newest") {
  CHECK_THAT(steps_to_remove(kSteps, {.keep_every = 200}), ElementsAre(100, 300));
  CHECK_THAT(steps_to_remove(kSteps, {.keep_every = 1000}), ElementsAre(100, 200, 300, 400));
}

TEST_CASE("Retention: keep best keeps the oldest of equal values") {
  CHECK_THAT(steps_to_remove(kSteps, {.keep_best = KeepBest{.metric = "loss"}}), ElementsAre(100, 300, 400));
  CHECK_THAT(steps_to_remove(kSteps, {.keep_best = KeepBest{.metric = "accuracy", .higher_is_better = true}}),
             ElementsAre(100, 300, 400));
  CHECK_THAT(steps_to_remove(kSteps, {.keep_best = KeepBest{.metric = "loss", .count = 2}}), ElementsAre(100, 300));
}

TEST_CASE("Retention: a checkpoint stays when any rule keeps it") {
  CHECK_THAT(steps_to_remove(kSteps, {.keep_last = 1, .keep_every = 300, .keep_best = KeepBest{.metric = "loss"}}),
             ElementsAre(100, 400));
}

TEST_CASE("Retention: the newest is the one that was saved last whatever its step") {
  // 10, 20, 30; then back to 10, and 15.
  const std::vector<RetainedStep> back = {{.step = 30, .sequence = 3, .metrics = {{"loss", 0.1}}},
                                          {.step = 15, .sequence = 4, .metrics = {{"loss", 0.1}}},
                                          {.step = 10, .sequence = 1},
                                          {.step = 20, .sequence = 2}};
  CHECK_THAT(steps_to_remove(back, {.keep_last = 1}), ElementsAre(10, 20, 30));
  CHECK_THAT(steps_to_remove(back, {.keep_last = 2}), ElementsAre(10, 20));
  CHECK_THAT(steps_to_remove(back, {.keep_every = 10}), IsEmpty());
  CHECK_THAT(steps_to_remove(back, {.keep_best = KeepBest{.metric = "loss"}}), ElementsAre(10, 20));
  // Those of version 1 have no number, and are older than all that have.
  CHECK_THAT(steps_to_remove({{.step = 40}, {.step = 50}, {.step = 15, .sequence = 1}}, {.keep_last = 2}),
             ElementsAre(40));
}

TEST_CASE("Retention: no rule ever removes the newest") {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<RetainedStep> steps;
    int64_t newest = 0;
    for (auto count = 1 + random() % 6; count > 0; --count) {
      const int64_t step = random() % 50;
      steps.push_back({.step = step, .metrics = {{"m", static_cast<double>(random() % 3)}}});
      newest = std::max(newest, step);
    }
    RetentionPolicy policy;
    if (random() % 2 == 0) policy.keep_last = 1 + random() % 3;
    if (random() % 2 == 0) policy.keep_every = 1 + random() % 20;
    if (random() % 2 == 0) policy.keep_best = KeepBest{.metric = "m", .higher_is_better = random() % 2 == 0};
    CHECK_THAT(steps_to_remove(steps, policy), !Contains(newest));
  }
}

TEST_CASE("Retention: counts below one are refused") {
  CHECK_THROWS_AS(check_policy({.keep_last = 0}), std::invalid_argument);
  CHECK_THROWS_AS(check_policy({.keep_every = 0}), std::invalid_argument);
  CHECK_THROWS_AS(check_policy({.keep_best = KeepBest{.metric = "m", .count = 0}}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp::storage
