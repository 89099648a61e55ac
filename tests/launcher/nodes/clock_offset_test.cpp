#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "launcher/nodes/control/heartbeat.h"
#include "tests/support/catch.h"

namespace launcher::control {
namespace {

TEST_CASE("Clock offset: nothing is known before the first answer") {
  ClockOffset clock;
  CHECK_FALSE(clock.difference(0));
  clock.add(1000, 7, 999);  // heard before it was asked
  CHECK_FALSE(clock.difference(2000));
}

TEST_CASE("Clock offset: it is wrong by no more than it says, whatever delays questions and answers") {
  std::mt19937 random(7);
  for (int job = 0; job < 200; ++job) {
    const std::int64_t ahead = std::uniform_int_distribution<std::int64_t>(-1'000'000'000, 1'000'000'000)(random);
    // Of a quiet network, and of a machine on which either side may wait for its turn.
    const double typical = std::exponential_distribution<double>(1.0 / 3000)(random) + 10;
    std::exponential_distribution<double> delay(1 / typical);
    ClockOffset clock;
    std::int64_t now = 0;
    for (int answer = 0; answer < 300; ++answer) {
      const std::int64_t asked = now += 100'000;
      const std::int64_t answered = asked + std::llround(delay(random));
      now = answered + std::llround(delay(random));
      clock.add(asked, answered + ahead, now);
      const auto found = clock.difference(now);
      REQUIRE(found);
      CHECK(std::abs(found->ahead - ahead) <= found->error);
    }
  }
}

TEST_CASE("Clock offset: the quickest answer counts, until it is old") {
  ClockOffset clock;
  clock.add(0, 5'050, 100);
  CHECK(clock.difference(100) == ClockDifference{.ahead = 5'000, .error = 52});
  clock.add(1'000, 8'000, 3'000);
  CHECK(clock.difference(100)->ahead == 5'000);
  // Its hosts' clocks may have drifted apart since.
  CHECK(clock.difference(1'000'100) == ClockDifference{.ahead = 5'000, .error = 152});
  for (std::int64_t i = 0; i < 130; ++i) clock.add(i * 10'000, i * 10'000 + 6'100, i * 10'000 + 200);
  CHECK(clock.difference(1'290'200) == ClockDifference{.ahead = 6'000, .error = 105});
}

}  // namespace
}  // namespace launcher::control
