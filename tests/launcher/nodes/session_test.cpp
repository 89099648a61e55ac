// A session of two launchers, whose connection is replaced in the middle of what they say.
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "launcher/nodes/control/control_link.h"
#include "launcher/os/system/event_loop.h"
#include "tests/support/catch.h"

namespace launcher::control {
namespace {

using namespace std::chrono_literals;

struct Ends {
  UniqueFd first;
  UniqueFd second;
};

Ends connection() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

class SessionTest {
 protected:
  struct End {
    std::unique_ptr<ControlLink> link;
    std::vector<int> rounds;  // of the messages that have come
    std::string carried;
    std::string closed;
    int rooms = 0;
  };
  SessionTest() {
    Ends ends = connection();
    open(node, std::move(ends.first));
    open(coordinator, std::move(ends.second));
  }
  void open(End& end, UniqueFd fd) {
    end.link = std::make_unique<ControlLink>(
        loop, std::move(fd),
        ControlLink::Callbacks{
            .on_message =
                [&end](const Message& message) { end.rounds.push_back(std::get<Acknowledged>(message).round); },
            .on_sign_of_life = [] {},
            .on_relayed = [&end](std::uint32_t, std::string_view bytes) { end.carried += bytes; },
            .on_space_available = [&end] { ++end.rooms; },
            .on_closed = [&end](const std::string& reason) { end.closed = reason; },
            .on_disconnected = [](bool) { return true; }});
  }
  // What is on its way is lost.
  void replace_connection() {
    node.link->release();
    coordinator.link->release();
    node.link->take_rest();
    Ends ends = connection();
    const std::uint64_t received = coordinator.link->received();
    REQUIRE(coordinator.link->resume(std::move(ends.second), node.link->received()));
    REQUIRE(node.link->resume(std::move(ends.first), received));
  }
  void run(int times = 1) {
    for (int i = 0; i < times; ++i) {
      loop.call_at(EventLoop::Clock::now(), [] {});
      loop.run_once();
    }
  }
  template <typename Condition>
  bool run_until(const Condition& condition) {
    const auto limit = EventLoop::Clock::now() + 60s;
    while (!condition() && EventLoop::Clock::now() < limit) run();
    return condition();
  }

  EventLoop loop;
  End node;
  End coordinator;
};

TEST_CASE_METHOD(SessionTest, "Session: whatever is lost with connections, all comes once and in order") {
  std::mt19937 dice(GENERATE(1U, 2U, 3U));
  std::array<End*, 2> ends = {&node, &coordinator};
  std::array<int, 2> said{};
  std::array<std::string, 2> carried;
  for (int step = 0; step < 3'000; ++step) {
    const std::size_t from = dice() % 2;
    ControlLink& link = *ends[from]->link;
    switch (dice() % 8) {
      case 0:
      case 1:
        link.send(Acknowledged{said[from]++});
        break;
      case 2:
      case 3: {
        const std::string bytes(dice() % 40'000, static_cast<char>('a' + step % 26));
        if (!link.has_room()) break;
        carried[from] += bytes;
        link.relay_bytes(7, bytes);
        link.flush();
        break;
      }
      case 4:
        link.acknowledge();
        break;
      case 5:
        replace_connection();
        break;
      default:
        run(static_cast<int>(dice() % 3));
    }
  }
  for (const std::size_t from : {0U, 1U}) {
    const End& to = *ends[1 - from];
    REQUIRE(run_until([&] {
      return to.rounds.size() == static_cast<std::size_t>(said[from]) && to.carried.size() == carried[from].size();
    }));
    CHECK(to.carried == carried[from]);
    for (int i = 0; i < said[from]; ++i) REQUIRE(to.rounds[static_cast<std::size_t>(i)] == i);
    CHECK(to.closed.empty());
  }
}

TEST_CASE_METHOD(SessionTest, "Session: what is said without a connection comes with the next one") {
  node.link->release();
  coordinator.link->release();
  CHECK_FALSE(node.link->is_connected());
  CHECK(node.link->is_open());
  node.link->send(Acknowledged{1});
  node.link->relay_bytes(7, "carried");
  replace_connection();
  REQUIRE(run_until([&] { return coordinator.carried == "carried"; }));
  CHECK(coordinator.rounds == std::vector<int>{1});
}

TEST_CASE_METHOD(SessionTest, "Session: what was carried is kept within bounds until it is acknowledged") {
  coordinator.link->release();  // nobody reads
  std::size_t carried = 0;
  const std::string piece(kMaxCarriedBytes, 'p');
  while (node.link->has_room()) {
    node.link->relay_bytes(7, piece);
    node.link->flush();
    carried += piece.size();
    REQUIRE(carried < std::size_t{8} << 20);
  }
  CHECK(node.rooms == 0);
  replace_connection();
  REQUIRE(run_until([&] { return coordinator.carried.size() == carried; }));
  REQUIRE(run_until([&] { return node.rooms > 0; }));
  CHECK(node.link->has_room());
}

TEST_CASE_METHOD(SessionTest, "Session: counts that no launcher would send are refused, and nothing changes") {
  node.link->send(Acknowledged{1});
  run(5);
  Ends ends = connection();
  CHECK_FALSE(node.link->resume(std::move(ends.first), std::uint64_t{1} << 40));
  node.link->send(Acknowledged{2});
  REQUIRE(run_until([&] { return coordinator.rounds == std::vector<int>{1, 2}; }));
  REQUIRE(node.link->can_resume(coordinator.link->received()));
}

TEST_CASE_METHOD(SessionTest, "Session: an acknowledgement of what was never sent ends it") {
  UniqueFd hostile = node.link->release();
  const std::string frame = acknowledgement(1'000);
  REQUIRE(::send(hostile.get(), frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size()));
  REQUIRE(run_until([&] { return !coordinator.closed.empty(); }));
  CHECK_FALSE(coordinator.link->is_open());
}

TEST_CASE_METHOD(SessionTest, "Session: messages that nobody takes are bounded") {
  node.link->release();
  const Word word{.text = std::string(20'000, 'w')};
  for (int i = 0; i < 200 && !node.link->has_overflowed(); ++i) node.link->send(word);
  CHECK(node.link->has_overflowed());
  Ends ends = connection();
  CHECK_FALSE(node.link->resume(std::move(ends.first), 0));
}

}  // namespace
}  // namespace launcher::control
