#include "comm/core/bucket_tuner.h"

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_CASE("BucketTuner: measures one bucket first and then smaller ones and takes the fastest") {
  BucketTuner tuner(10 * kMiB);
  std::vector<int64_t> tried;
  int steps = 0;
  while (!tuner.needs_decision()) {
    REQUIRE(++steps < 100);
    if (tried.empty() || tried.back() != tuner.bytes()) tried.push_back(tuner.bytes());
    tuner.record(tuner.bytes() == 2 * kMiB ? 1.0 : 2.0);
    CHECK_FALSE(tuner.is_finished());
  }
  CHECK(tried == std::vector<int64_t>{10 * kMiB, 8 * kMiB, 4 * kMiB, 2 * kMiB, kMiB, kMiB / 2, kMiB / 4});
  CHECK(tuner.times().size() == tried.size());
  tuner.decide(tuner.times());
  CHECK(tuner.is_finished());
  CHECK(tuner.bytes() == 2 * kMiB);
  tuner.record(0.001);
  CHECK(tuner.bytes() == 2 * kMiB);
}

TEST_CASE("BucketTuner: leaves the first step of a size out and keeps the best of the others") {
  BucketTuner tuner(kMiB / 8);
  for (const double seconds : {0.1, 3.0, 2.0, 4.0}) tuner.record(seconds);
  REQUIRE(tuner.needs_decision());
  CHECK(tuner.times() == std::vector<double>{2.0});
  CHECK_THROWS_AS(tuner.decide({1.0, 2.0}), std::invalid_argument);
}

TEST_CASE("BucketTuner: takes the larger of two sizes that differ less than steps do") {
  const auto chosen = [](double of_two_mib) {
    BucketTuner tuner(4 * kMiB);  // candidates: 4, 2, 1, 0.5 and 0.25 MiB
    while (!tuner.needs_decision()) tuner.record(1.0);
    tuner.decide({1.5, of_two_mib, 1.0, 1.005, 1.2});
    return tuner.bytes();
  };
  CHECK(chosen(1.015) == 2 * kMiB);
  CHECK(chosen(1.03) == kMiB);
}

TEST_CASE("BucketTuner: can be stopped with a given size") {
  BucketTuner tuner(100 * kMiB);
  tuner.record(1.0);
  tuner.stop(25 * kMiB);
  CHECK(tuner.is_finished());
  CHECK_FALSE(tuner.needs_decision());
  CHECK(tuner.bytes() == 25 * kMiB);
}

// The sizes that a tuner tries for so many bytes of gradients.
std::vector<int64_t> candidates_for(int64_t gradient_bytes) {
  BucketTuner tuner(gradient_bytes);
  std::vector<int64_t> tried{tuner.bytes()};
  for (int steps = 0; !tuner.needs_decision(); ++steps) {
    REQUIRE(steps < 100);
    tuner.record(1.0);
    if (tuner.bytes() != tried.back()) tried.push_back(tuner.bytes());
  }
  REQUIRE(tuner.times().size() == tried.size());
  return tried;
}

TEST_CASE("BucketTuner: tries one bucket for everything and then sizes that give at least two") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << (1 + random() % 38)));
    INFO(bytes << " bytes of gradients");
    const auto tried = candidates_for(bytes);
    CHECK(tried.front() == std::max(bytes, kMiB / 4));
    for (size_t k = 1; k < tried.size(); ++k) {
      CHECK(tried[k] < bytes);
      CHECK(tried[k] >= kMiB / 4);
      CHECK(tried[k] <= 64 * kMiB);
      CHECK(tried[k] < tried[k - 1]);
    }
    UNSCOPED_INFO("all ranks know the same bytes, so they try the same sizes");
    CHECK(candidates_for(bytes) == tried);
  }
}

TEST_CASE("BucketTuner: gradients too small to be cut have one size") {
  for (const int64_t bytes : {int64_t{1}, kMiB / 4 - 1, kMiB / 4}) {
    CHECK(candidates_for(bytes) == std::vector<int64_t>{kMiB / 4});
  }
  CHECK(candidates_for(kMiB / 4 + 1) == std::vector<int64_t>{kMiB / 4 + 1, kMiB / 4});
}

// Layers without elements have parameters without bytes.
TEST_CASE("BucketTuner: gradients without a byte have one size, too") {
  CHECK(candidates_for(0) == std::vector<int64_t>{kMiB / 4});
}

TEST_CASE("BucketTuner: the size changes only where a size's steps are done") {
  BucketTuner tuner(kMiB);  // 1, 0.5 and 0.25 MiB
  std::vector<int64_t> used;
  while (!tuner.needs_decision()) {
    used.push_back(tuner.bytes());
    tuner.record(1.0);
  }
  REQUIRE(used.size() == 12);
  for (size_t step = 0; step < used.size(); ++step) CHECK(used[step] == kMiB >> (step / 4));
  UNSCOPED_INFO("what is still recorded before the ranks have decided does not count");
  const auto times = tuner.times();
  tuner.record(1e-9);
  CHECK(tuner.times() == times);
  CHECK(tuner.needs_decision());
}

TEST_CASE("BucketTuner: the slowest rank's times decide, whatever was measured here") {
  BucketTuner tuner(kMiB);
  while (!tuner.needs_decision()) tuner.record(tuner.bytes() == kMiB ? 0.1 : 1.0);
  tuner.decide({3.0, 2.0, 1.0});
  CHECK(tuner.is_finished());
  CHECK_FALSE(tuner.needs_decision());
  CHECK(tuner.bytes() == kMiB / 4);
}

TEST_CASE("BucketTuner: steps that were never timed leave one bucket") {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  BucketTuner tuner(kMiB);
  while (!tuner.needs_decision()) tuner.record(1.0);
  tuner.decide({kNever, kNever, kNever});
  CHECK(tuner.bytes() == kMiB);
}

TEST_CASE("BucketTuner: can be stopped before its first step and after its last") {
  BucketTuner tuner(kMiB);
  tuner.stop(7);
  CHECK(tuner.bytes() == 7);
  tuner.record(1.0);
  CHECK(tuner.bytes() == 7);
  BucketTuner decided(kMiB);
  while (!decided.needs_decision()) decided.record(1.0);
  decided.decide(decided.times());
  decided.stop(9);
  CHECK(decided.bytes() == 9);
  CHECK(decided.is_finished());
}

}  // namespace
}  // namespace ddp::detail
