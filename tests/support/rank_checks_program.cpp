// Tests that fail on purpose; rank_checks_test.py looks at what is said.
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::test {
namespace {

using Catch::Matchers::ContainsSubstring;

// Runs `body` in `count` threads at once.
template <typename Body>
void run_threads(int count, const Body& body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&body, i] {
      try {
        body(i);
      } catch (const RequirementFailed&) {
      }
    });
  }
}

TEST_CASE("what holds in threads is counted") {
  run_threads(4, [](int i) {
    for (int k = 0; k < 1000; ++k) RANK_CHECK(i < 4);
    RANK_CHECK_FALSE(i > 4);
    RANK_CHECK_THAT("some text", ContainsSubstring("text"));
    RANK_CHECK_THROWS_AS(std::stoi("x"), std::invalid_argument);
    RANK_CHECK_THROWS_MATCHES(throw std::runtime_error("wrong"), std::runtime_error, ContainsSubstring("wrong"));
  });
  CHECK(report_rank_checks());
}

TEST_CASE("failures of threads are told with their values") {
  run_threads(2, [](int i) {
    RANK_INFO("thread " << i);
    RANK_CHECK(i + 10 == 10);
    RANK_CHECK_THAT(std::to_string(i), ContainsSubstring("0"));
    RANK_CHECK_FALSE(i == 1);
  });
  CHECK_FALSE(report_rank_checks());
}

TEST_CASE("a requirement ends its thread alone") {
  std::vector<int> ends(2);
  run_threads(2, [&ends](int i) {
    RANK_REQUIRE(i == 0);
    ends[static_cast<size_t>(i)] = 1;
  });
  CHECK(ends == std::vector{1, 0});
  CHECK_FALSE(report_rank_checks());
}

TEST_CASE("on the main thread failures are told at once") {
  RANK_CHECK(1 + 1 == 3);
  RANK_REQUIRE(2 + 2 == 5);
  FAIL("not reached");
}

TEST_CASE("what nobody reports fails the program", "[.]") {
  run_threads(1, [](int i) { RANK_CHECK(i == 7); });
}

TEST_CASE("Catch2's own assertions end the program in a thread", "[.]") {
  run_threads(1, [](int i) { CHECK(i == 0); });
}

}  // namespace
}  // namespace ddp::test
