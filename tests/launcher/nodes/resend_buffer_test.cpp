#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "launcher/nodes/control/frames.h"
#include "tests/support/catch.h"

namespace launcher::control {
namespace {

// Sends at most `most` bytes, which the network loses if nobody appends them to what was received.
std::string send(ResendBuffer& buffer, std::size_t most) {
  std::string sent;
  while (sent.size() < most && !buffer.is_all_sent()) {
    const std::string part(buffer.unsent().substr(0, most - sent.size()));
    buffer.sent(part.size());
    sent += part;
  }
  return sent;
}

TEST_CASE("ResendBuffer: keeps what was not acknowledged, and nothing else") {
  ResendBuffer buffer;
  buffer.add("first");
  buffer.add("");
  buffer.add("second");
  CHECK(buffer.size() == 11);
  CHECK(send(buffer, 7) == "firstse");
  REQUIRE(buffer.acknowledge(5));
  REQUIRE(buffer.acknowledge(3));  // an older one
  CHECK(buffer.acknowledged() == 5);
  CHECK(send(buffer, 100) == "cond");
  REQUIRE(buffer.acknowledge(11));
  CHECK(buffer.size() == 0);
  CHECK(buffer.unsent().empty());
}

TEST_CASE("ResendBuffer: forgets large frames one by one, and small ones together") {
  constexpr std::size_t kLarge = 20'000;
  ResendBuffer buffer;
  for (int i = 0; i < 10; ++i) buffer.add(std::string(kLarge, 'l'));
  send(buffer, 10 * kLarge);
  REQUIRE(buffer.acknowledge(3 * kLarge));
  CHECK(buffer.size() == 7 * kLarge);
  REQUIRE(buffer.acknowledge(10 * kLarge));
  for (int i = 0; i < 10'000; ++i) buffer.add("small");
  send(buffer, 50'000);
  REQUIRE(buffer.acknowledge(10 * kLarge + 49'000));
  CHECK(buffer.size() < kLarge);
}

TEST_CASE("ResendBuffer: sends again what follows the position that the other end has") {
  ResendBuffer buffer;
  buffer.add("first");
  buffer.add("second");
  send(buffer, 100);
  REQUIRE(buffer.rewind(5));
  CHECK(send(buffer, 100) == "second");
  REQUIRE(buffer.rewind(8));  // within what was added at once
  CHECK(send(buffer, 100) == "ond");
  CHECK_FALSE(buffer.rewind(7));  // is forgotten
  REQUIRE(buffer.rewind(11));
  CHECK(buffer.is_all_sent());
  buffer.add("third");
  CHECK(send(buffer, 100) == "third");
}

TEST_CASE("ResendBuffer: counts that no launcher would send change nothing") {
  ResendBuffer buffer;
  buffer.add("first");
  send(buffer, 3);
  for (const std::uint64_t hostile : {std::uint64_t{4}, std::uint64_t{5}, std::numeric_limits<std::uint64_t>::max()}) {
    CHECK_FALSE(buffer.acknowledge(hostile));
    CHECK_FALSE(buffer.rewind(hostile));
  }
  CHECK(send(buffer, 100) == "st");
}

TEST_CASE("ResendBuffer: whatever is lost and whenever, all comes once and in order") {
  std::mt19937 dice(GENERATE(1U, 2U, 3U, 4U));
  ResendBuffer buffer;
  std::string all;
  std::string received;
  for (int step = 0; step < 20'000; ++step) {
    switch (dice() % 6) {
      case 0:
      case 1: {
        const std::string part(dice() % 40, static_cast<char>('a' + step % 26));
        all += part;
        buffer.add(part);
        break;
      }
      case 2:
      case 3:
        received += send(buffer, dice() % 60);
        break;
      case 4:
        REQUIRE(buffer.acknowledge(received.size() - dice() % (received.size() - buffer.acknowledged() + 1)));
        break;
      default:
        send(buffer, dice() % 60);  // is lost with the connection
        REQUIRE(buffer.rewind(received.size()));
    }
    REQUIRE(buffer.size() <= all.size());
  }
  received += send(buffer, all.size());
  CHECK(received == all);
}

}  // namespace
}  // namespace launcher::control
