#include "fsdp/core/unit_schedule.h"

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

namespace ddp::fsdp {
namespace {

// "+1 -0": opens unit 1, closes unit 0.
std::string text_of(const std::vector<UnitSchedule::Step>& steps) {
  std::string text;
  for (const UnitSchedule::Step& step : steps) {
    text += (text.empty() ? "" : " ") + std::string(step.kind == UnitSchedule::Step::Kind::kOpen ? "+" : "-") +
            std::to_string(step.unit);
  }
  return text;
}

const auto kIncomplete = [](int /*unit*/) { return false; };

TEST_CASE("UnitSchedule: a unit is closed when another begins") {
  UnitSchedule schedule({-1, 0, 0}, {false, false, false});
  CHECK(text_of(schedule.begin_forward(true)) == "+0");
  CHECK(text_of(schedule.use_in_forward({1})) == "+1");
  CHECK(text_of(schedule.use_in_forward({1})).empty());
  CHECK(schedule.is_innermost(1));
  CHECK(text_of(schedule.use_in_forward({2})) == "-1 +2");
  CHECK(text_of(schedule.use_in_forward({0})) == "-2");
  CHECK(text_of(schedule.end_forward()) == "-0");
}

TEST_CASE("UnitSchedule: a unit stays open while one inside it is used") {
  UnitSchedule schedule({-1, 0, 1, 0}, {false, false, false, false});
  schedule.begin_forward(true);
  // The outer one first, though an operator used only the inner one.
  CHECK(text_of(schedule.use_in_forward({2})) == "+1 +2");
  CHECK(text_of(schedule.use_in_forward({1})) == "-2");
  CHECK(text_of(schedule.use_in_forward({2})) == "+2");
  CHECK(text_of(schedule.use_in_forward({3})) == "-2 -1 +3");
}

TEST_CASE("UnitSchedule: an operator that uses two units needs both open") {
  UnitSchedule schedule({-1, 0, 0, 0}, {false, false, false, false});
  schedule.begin_forward(true);
  schedule.use_in_forward({1});
  CHECK(text_of(schedule.use_in_forward({1, 2})) == "+2");
  CHECK(text_of(schedule.use_in_forward({3})) == "-2 -1 +3");
}

// The units that are expected next after each one that opens: "0>1 1>2 2>-".
std::string expectations(UnitSchedule& schedule, bool records, const std::vector<int>& uses) {
  std::vector<UnitSchedule::Step> steps = schedule.begin_forward(records);
  for (const int unit : uses) {
    for (const auto& step : schedule.use_in_forward({unit})) steps.push_back(step);
  }
  schedule.end_forward();
  std::string text;
  for (const UnitSchedule::Step& step : steps) {
    if (step.kind != UnitSchedule::Step::Kind::kOpen) continue;
    text +=
        (text.empty() ? "" : " ") + std::to_string(step.unit) + ">" + (step.next ? std::to_string(*step.next) : "-");
  }
  return text;
}

TEST_CASE("UnitSchedule: a forward expects the units of the last one of its kind, until it takes another way") {
  UnitSchedule schedule({-1, 0, 0, 0}, {false, false, false, true});
  CHECK(expectations(schedule, true, {1, 2, 1}) == "0>- 1>- 2>- 1>-");
  CHECK(expectations(schedule, false, {2}) == "0>- 2>-");
  CHECK(expectations(schedule, true, {1, 2, 1}) == "0>1 1>2 2>1 1>-");
  // Unit 3 has nothing to gather.
  CHECK(expectations(schedule, true, {1, 3, 2, 2}) == "0>1 1>2 3>2 2>1");
  CHECK(expectations(schedule, true, {2, 1}) == "0>1 2>- 1>-");
  schedule.begin_forward(true);
  schedule.use_in_forward({1});
  schedule.abandon_forward();
  CHECK(expectations(schedule, true, {2, 1}) == "0>2 2>1 1>-");
  CHECK(expectations(schedule, false, {2, 1}) == "0>2 2>- 1>-");
}

TEST_CASE("UnitSchedule: a backward gathers in advance the unit that was closed before") {
  UnitSchedule schedule({-1, 0, 0}, {false, false, false});
  schedule.begin_forward(true);
  schedule.use_in_forward({1});
  schedule.use_in_forward({2});
  schedule.end_forward();
  schedule.begin_backward();
  CHECK(schedule.use_in_backward(0, kIncomplete).prefetch == 2);
  CHECK(schedule.use_in_backward(2, kIncomplete).prefetch == 1);
  CHECK(!schedule.use_in_backward(1, kIncomplete).prefetch.has_value());
  CHECK(!schedule.awaits_backward(1));
}

TEST_CASE("UnitSchedule: a unit without parameters is not in the order") {
  UnitSchedule schedule({-1, 0, 1}, {true, true, false});
  schedule.begin_forward(true);
  schedule.use_in_forward({2});
  schedule.end_forward();
  schedule.begin_backward();
  CHECK(schedule.awaits_backward(0));  // for what is in it
  CHECK(!schedule.use_in_backward(2, kIncomplete).prefetch.has_value());
  schedule.end_backward();
  CHECK(!schedule.awaits_backward(0));
}

TEST_CASE("UnitSchedule: a unit that a forward uses twice has two uses in the backward") {
  UnitSchedule schedule({-1, 0, 0}, {false, false, false});
  schedule.begin_forward(true);
  for (const int unit : {1, 2, 1}) schedule.use_in_forward({unit});
  schedule.end_forward();
  schedule.begin_backward();
  CHECK(schedule.use_in_backward(1, kIncomplete).prefetch == 2);
  // Of the two others only unit 1 will be used again.
  CHECK(schedule.use_in_backward(2, kIncomplete).may_be_freed == std::vector<int>{1});
  CHECK(!schedule.use_in_backward(1, kIncomplete).prefetch.has_value());
}

TEST_CASE("UnitSchedule: a unit comes again in a backward if the same forward has used it before") {
  UnitSchedule schedule({-1, 0, 0}, {false, false, false});
  schedule.begin_forward(true);
  for (const int unit : {1, 2, 1}) schedule.use_in_forward({unit});
  schedule.end_forward();
  schedule.begin_forward(true);
  schedule.use_in_forward({1});
  schedule.end_forward();
  schedule.begin_backward();
  CHECK(!schedule.use_in_backward(1, kIncomplete).is_used_again);  // the second forward's
  CHECK(schedule.use_in_backward(1, kIncomplete).is_used_again);
  CHECK(!schedule.use_in_backward(1, kIncomplete).is_used_again);
  CHECK(!schedule.use_in_backward(1, kIncomplete).is_used_again);
}

TEST_CASE("UnitSchedule: a backward that is not the last one leaves the order of earlier forwards") {
  UnitSchedule schedule({-1, 0, 0}, {false, false, false});
  for (int forward = 0; forward < 2; ++forward) {
    schedule.begin_forward(true);
    for (const int unit : {1, 2}) schedule.use_in_forward({unit});
    schedule.end_forward();
  }
  for (const bool is_last : {false, true}) {
    schedule.begin_backward();
    CHECK(schedule.awaits_backward(0));
    CHECK(schedule.use_in_backward(0, kIncomplete).prefetch == 2);
    CHECK(schedule.use_in_backward(2, kIncomplete).prefetch == 1);
    CHECK(schedule.use_in_backward(1, kIncomplete).prefetch == (is_last ? std::nullopt : std::optional(0)));
    is_last ? schedule.end_backward() : schedule.pause_backward();
    CHECK(!schedule.is_in_backward());
    CHECK(schedule.awaits_backward(0) == !is_last);
  }
}

TEST_CASE("UnitSchedule: what is complete may be freed, what contains the used unit may not") {
  UnitSchedule schedule({-1, 0, 1, 0}, {false, false, false, false});
  const auto all = [](int /*unit*/) { return true; };
  CHECK(schedule.use_in_backward(2, all).may_be_freed == std::vector<int>{3});
  CHECK(schedule.use_in_backward(3, all).may_be_freed == std::vector<int>{1, 2});
}

TEST_CASE("UnitSchedule: a unit is reduced after those inside it that were used") {
  UnitSchedule schedule({-1, 0, 1, 1}, {false, false, false, false});
  schedule.begin_forward(true);
  schedule.use_in_forward({2});
  schedule.end_forward();
  schedule.begin_backward();
  CHECK(schedule.waits_for_inner(1));
  schedule.set_reduced(2);
  CHECK(!schedule.waits_for_inner(1));
}

TEST_CASE("UnitSchedule: forwards without gradients leave no uses") {
  UnitSchedule schedule({-1, 0}, {false, false});
  schedule.begin_forward(false);
  schedule.use_in_forward({1});
  schedule.end_forward();
  CHECK(!schedule.awaits_backward(1));
}

TEST_CASE("UnitSchedule: forwards that no backward follows do not add up without limit") {
  UnitSchedule schedule({-1, 0}, {false, false});
  for (int i = 0; i < 100000; ++i) {
    schedule.begin_forward(true);
    schedule.use_in_forward({1});
    schedule.end_forward();
  }
  schedule.begin_backward();
  CHECK(schedule.use_in_backward(0, kIncomplete).prefetch == 1);
  CHECK(schedule.use_in_backward(1, kIncomplete).prefetch == 0);
}

TEST_CASE("UnitSchedule: a forward that failed leaves nothing open") {
  UnitSchedule schedule({-1, 0}, {false, false});
  schedule.begin_forward(true);
  schedule.use_in_forward({1});
  schedule.abandon_forward();
  CHECK(text_of(schedule.begin_forward(true)) == "+0");
  CHECK(text_of(schedule.use_in_forward({1})) == "+1");
}

}  // namespace
}  // namespace ddp::fsdp
