// A rank that fails while others have queued collectives: nobody waits for the devices then, and the program ends.
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>

#include <ddprun/comm/collectives.h>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp::test {
namespace {

using Catch::Matchers::ContainsSubstring;

void queue_collectives(const GroupHandle& group) {
  const at::Tensor tensor = here(at::ones({1000}));
  for (int i = 0; i < 20; ++i) all_reduce(tensor, group);
}

// What the cases below start, each in a program of its own.
TEST_CASE("a rank fails before its collectives", "[.child]") {
  run_ranks(2, [](const GroupHandle& group) {
    if (group.rank() == 1) RANK_FAIL("on purpose");
    queue_collectives(group);
  });
}
TEST_CASE("a rank fails after its collectives were queued", "[.child]") {
  run_ranks(2, [](const GroupHandle& group) {
    if (group.rank() == 0) return;
    queue_collectives(group);
    RANK_FAIL("on purpose");
  });
}
TEST_CASE("a rank throws in the middle", "[.child]") {
  run_ranks(3, [](const GroupHandle& group) {
    queue_collectives(group);
    if (group.rank() == 2) throw std::runtime_error("on purpose");
    queue_collectives(group);
  });
}
TEST_CASE("every rank fails with collectives queued", "[.child]") {
  run_ranks(2, [](const GroupHandle& group) {
    queue_collectives(group);
    RANK_FAIL("on purpose");
  });
}

TEST_CASE("FailingRank: the program ends at once with what the rank has found") {
  const std::string name =
      GENERATE("a rank fails before its collectives", "a rank fails after its collectives were queued",
               "a rank throws in the middle", "every rank fails with collectives queued");
  INFO(name);
  std::string own = "/proc/self/exe";
  own.resize(4096);
  own.resize(static_cast<size_t>(readlink("/proc/self/exe", own.data(), own.size())));
  for (int seed = 0; seed < 3; ++seed) {
    INFO("schedule " << seed);
    const Outcome outcome =
        ChildProcess({.arguments = {own, name}, .environment = {{"DDPRUN_TEST_DEVICE_SEED", std::to_string(seed)}}})
            .wait(std::chrono::seconds(60));
    CHECK_FALSE(outcome.timed_out);
    CHECK(outcome.status != 0);
    CHECK(outcome.status < 128);
    // Or what the rank found first: that the other one had gone.
    CHECK_THAT(outcome.output + outcome.errors,
               ContainsSubstring("on purpose") || ContainsSubstring("has closed its group"));
    CHECK(outcome.duration < std::chrono::seconds(15));  // run_ranks() gives each collective 20 s
  }
}

}  // namespace
}  // namespace ddp::test
