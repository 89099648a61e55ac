// What ReduceLROnPlateau refuses, and how its counts go. Random metrics are compared with Python's in plateau_test.py.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/schedules/schedule.h>

#include "tests/schedules/refused.h"
#include "tests/support/catch.h"

namespace ddp::schedules {
namespace {

using test::refused;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("Plateau: a best that is not finite comes back") {
  for (const double best : {kInfinity, -kInfinity}) {
    Groups groups = {{.lr = 1}}, same = groups;
    const PlateauOptions options{.mode = best < 0 ? PlateauMode::kMin : PlateauMode::kMax, .patience = 0};
    Plateau plateau(options), resumed(options);
    plateau.step(best, groups);
    resumed.load(plateau.save());
    CHECK(resumed.save() == plateau.save());
    // Nothing is better than that.
    plateau.step(0.5, groups);
    resumed.step(0.5, same);
    CHECK(groups[0].lr == 0.1);
    CHECK(same[0].lr == 0.1);
  }
  Plateau new_one, resumed;
  resumed.load(new_one.save());
  CHECK(resumed.save() == new_one.save());
}

TEST_CASE("Plateau: options and groups that do not fit are refused") {
  refused([] { Plateau({.factor = 1}); }, "Factor should be < 1.0.");
  refused([] { Plateau({.factor = kInfinity}); }, "Factor should be < 1.0.");
  refused([] { Plateau({.factor = kNan}); }, "Factor should be < 1.0.");
  Groups two = {{.lr = 1}, {.lr = 2}};
  for (const auto& min_lr : {std::vector<double>{}, {1, 2, 3}}) {
    refused([&] { Plateau({.min_lr = min_lr}).step(1, two); }, "min_lr must have the same length");
  }
}

// The rates that `metrics` lead to, one group's.
std::vector<double> rates(const PlateauOptions& options, const std::vector<double>& metrics) {
  Plateau plateau(options);
  Groups groups = {{.lr = 1}};
  std::vector<double> result;
  for (const double metric : metrics) {
    plateau.step(metric, groups);
    result.push_back(groups[0].lr);
  }
  return result;
}

TEST_CASE("Plateau: patience is how many bad metrics are put up with") {
  using Rates = std::vector<double>;
  const PlateauOptions half{.factor = 0.5, .patience = 1};
  CHECK(rates(half, {3, 3, 3, 3, 3, 3}) == Rates{1, 1, 0.5, 0.5, 0.25, 0.25});
  CHECK(rates(half, {3, 3, 2, 2, 1, 1}) == Rates{1, 1, 1, 1, 1, 1});
  CHECK(rates({.factor = 0.5, .patience = 0}, {3, 3, 2, 2, 2}) == Rates{1, 0.5, 0.5, 0.25, 0.125});
  // NaN is not an improvement, and nothing to compare with either: the first number after it is the best one.
  CHECK(rates(half, {kNan, kNan, 5, 4}) == Rates{1, 0.5, 0.5, 0.5});
  CHECK(rates(half, {5, kNan, kNan, 4}) == Rates{1, 1, 0.5, 0.5});
  // Metrics of a cooldown do not count, the one that ends it included.
  CHECK(rates({.factor = 0.5, .patience = 0, .cooldown = 2}, {3, 3, 3, 3, 3, 3}) ==
        Rates{1, 0.5, 0.5, 0.5, 0.25, 0.25});
  CHECK(rates({.factor = 0.5, .patience = 0, .min_lr = {0.3}}, {3, 3, 3, 3}) == Rates{1, 0.5, 0.3, 0.3});
  // Reductions below eps are not made.
  CHECK(rates({.factor = 0.5, .patience = 0, .eps = 0.25}, {3, 3, 3, 3}) == Rates{1, 0.5, 0.5, 0.5});
}

TEST_CASE("Plateau: the threshold is of the best metric or beside it") {
  struct Case {
    PlateauMode mode;
    ThresholdMode threshold_mode;
    double first, second;
    bool better;
  };
  const auto [mode, threshold_mode, first, second, better] = GENERATE(values<Case>({
      {PlateauMode::kMin, ThresholdMode::kRelative, 8, 7.1, false},
      {PlateauMode::kMin, ThresholdMode::kRelative, 8, 6.9, true},
      {PlateauMode::kMax, ThresholdMode::kRelative, 8, 8.9, false},
      {PlateauMode::kMax, ThresholdMode::kRelative, 8, 9.1, true},
      // Below 0 a relative threshold lies on the other side: as in Python, the same value is better.
      {PlateauMode::kMin, ThresholdMode::kRelative, -8, -7.1, true},
      {PlateauMode::kMin, ThresholdMode::kRelative, -8, -6.9, false},
      {PlateauMode::kMin, ThresholdMode::kAbsolute, 8, 7.9, false},
      {PlateauMode::kMin, ThresholdMode::kAbsolute, 8, 7.8, true},
      {PlateauMode::kMax, ThresholdMode::kAbsolute, -8, -7.9, false},
      {PlateauMode::kMax, ThresholdMode::kAbsolute, -8, -7.8, true},
  }));
  CAPTURE(first, second);
  const auto lowered =
      rates({.mode = mode, .patience = 0, .threshold = 0.125, .threshold_mode = threshold_mode}, {first, second});
  CHECK((lowered.back() == 1) == better);
}

TEST_CASE("Plateau: damaged states are refused and change nothing") {
  Groups groups = {{.lr = 1}};
  Plateau plateau({.patience = 3});
  for (const double metric : {2.0, 3.0, 3.0}) plateau.step(metric, groups);
  const auto state = plateau.save();
  for (
      const auto* bad :
      {"", "3", "[]", R"({"type":"StepLR","last_epoch":1,"cooldown_counter":0,"num_bad_epochs":0})",
       R"({"type":"ReduceLROnPlateau","last_epoch":-1,"cooldown_counter":0,"num_bad_epochs":0})",
       R"({"type":"ReduceLROnPlateau","last_epoch":1,"cooldown_counter":-1,"num_bad_epochs":0})",
       R"({"type":"ReduceLROnPlateau","last_epoch":1,"cooldown_counter":0,"num_bad_epochs":0.5})",
       R"({"type":"ReduceLROnPlateau","last_epoch":1e300,"cooldown_counter":0,"num_bad_epochs":0})",
       R"({"type":"ReduceLROnPlateau","last_epoch":1,"cooldown_counter":9223372036854775807,"num_bad_epochs":0})",
       R"({"type":"ReduceLROnPlateau","last_epoch":1,"cooldown_counter":0,"num_bad_epochs":18446744073709551615})",
       R"({"type":"ReduceLROnPlateau","last_epoch":1,"cooldown_counter":0,"num_bad_epochs":0,"best":"low"})",
       R"({"type":"ReduceLROnPlateau","last_epoch":1,"cooldown_counter":0,"num_bad_epochs":0,"best":{"__float__":"-"}})"}) {
    INFO(bad);
    CHECK_THROWS_AS(plateau.load(bad), std::invalid_argument);
    CHECK(plateau.save() == state);
  }
}

}  // namespace
}  // namespace ddp::schedules
