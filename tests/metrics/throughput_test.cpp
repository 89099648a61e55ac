// Throughput counts samples against the time that passed; what a busy machine does to that time is measured, too.
#include <ATen/ops/tensor.h>

#include <chrono>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/metrics/metrics.h>

#include "tests/metrics/shared_samples.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using test::here;
using test::SharedSamples;

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

void wait_at_least(Clock::duration time) {
  const auto begin = Clock::now();
  while (Clock::now() - begin < time) continue;
}

double combined(double value, const GroupHandle& group, ReduceOp op) {
  at::Tensor tensor = here(at::tensor({value}, at::kDouble));
  all_reduce(tensor, group, op);
  return tensor.item<double>();
}

TEST_CASE_METHOD(SharedSamples, "Throughput: is all samples over the longest time") {
  on_ranks([](const GroupHandle& group) {
    Throughput throughput;
    throughput.update(1'000'000 * (group.rank() + 1));
    const auto before = std::chrono::steady_clock::now();
    while (throughput.per_second() > 1e12 || std::chrono::steady_clock::now() - before < std::chrono::milliseconds(2)) {
    }
    const double rate = throughput.compute(group);
    RANK_CHECK(rate > 0);
    RANK_CHECK(rate <= 6e6 / 2e-3);
    throughput.reset();
    RANK_CHECK(throughput.compute(group) == 0.0);
  });
}

TEST_CASE_METHOD(SharedSamples, "Throughput: it is the rank that took longest whose time counts") {
  on_ranks([](const GroupHandle& group) {
    const auto before = Clock::now();
    Throughput throughput;
    const auto begun = Clock::now();
    throughput.update(10);
    if (group.rank() == 1) wait_at_least(std::chrono::milliseconds(20));
    const double least = seconds(Clock::now() - begun);
    const double rate = throughput.compute(group);
    const double most = seconds(Clock::now() - before);
    // No rank's own time can be longer than this one, nor the longest shorter than that one.
    RANK_CHECK(rate >= 30.0 / combined(most, group, ReduceOp::kMax));
    RANK_CHECK(rate <= 30.0 / combined(least, group, ReduceOp::kMax));
    // The same on every rank, to the bit.
    RANK_CHECK(combined(rate, group, ReduceOp::kMin) == combined(rate, group, ReduceOp::kMax));
  });
}

TEST_CASE("Throughput: of one rank is its samples over its time") {
  const auto before = Clock::now();
  Throughput throughput;
  const auto begun = Clock::now();
  for (int i = 0; i < 10; ++i) throughput.update(7);
  wait_at_least(std::chrono::milliseconds(2));
  const auto early = Clock::now();
  const double rate = throughput.per_second();
  const auto late = Clock::now();
  CHECK(rate >= 70.0 / seconds(late - before));
  CHECK(rate <= 70.0 / seconds(early - begun));
}

TEST_CASE("Throughput: falls while no samples come") {
  Throughput throughput;
  throughput.update(100);
  wait_at_least(std::chrono::milliseconds(1));
  const double earlier = throughput.per_second();
  wait_at_least(std::chrono::milliseconds(1));
  CHECK(throughput.per_second() < earlier);
}

TEST_CASE("Throughput: is a number at once, and none without samples") {
  Throughput throughput;
  CHECK(throughput.per_second() == 0.0);
  throughput.update(int64_t{1} << 52);
  CHECK(throughput.per_second() > 0.0);
  CHECK(throughput.per_second() < 1e26);  // never infinite
  throughput.reset();
  CHECK(throughput.per_second() == 0.0);
}

TEST_CASE("Throughput: a reset begins a new time") {
  Throughput throughput;
  wait_at_least(std::chrono::milliseconds(20));
  const auto before = Clock::now();
  throughput.reset();
  throughput.update(5);
  const double rate = throughput.per_second();
  CHECK(rate >= 5.0 / seconds(Clock::now() - before));
}

}  // namespace
}  // namespace ddp
