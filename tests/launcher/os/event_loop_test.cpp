#include "launcher/os/system/event_loop.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Clock = EventLoop::Clock;
using ddp::test::ElementsAre;

void put(const Pipe& pipe) {
  REQUIRE(::write(pipe.writer.get(), "x", 1) == 1);
}
void take(const Pipe& pipe) {
  char byte = 0;
  REQUIRE(::read(pipe.reader.get(), &byte, 1) == 1);
}

// One round that is over at once.
void run_round(EventLoop& loop) {
  loop.call_at(Clock::now(), [] {});
  loop.run_once();
}

TEST_CASE("EventLoop: calls the handler of what is ready, with its events") {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  std::vector<std::uint32_t> seen;
  loop.add(pipe.reader.get(), EPOLLIN, [&](std::uint32_t events) { seen.push_back(events); });
  run_round(loop);
  CHECK(seen.empty());
  put(pipe);
  loop.run_once();
  loop.run_once();  // it is still there
  CHECK_THAT(seen, ElementsAre(std::uint32_t{EPOLLIN}, std::uint32_t{EPOLLIN}));
}

TEST_CASE("EventLoop: the other end's end is an event that needs no asking") {
  EventLoop loop;
  Pipe pipe = make_pipe();
  std::uint32_t seen = 0;
  loop.add(pipe.reader.get(), 0, [&](std::uint32_t events) { seen = events; });
  pipe.writer.reset();
  loop.run_once();
  CHECK(seen == EPOLLHUP);
}

TEST_CASE("EventLoop: delivers in the order in which descriptors became ready") {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    EventLoop loop;
    std::vector<Pipe> pipes;
    std::vector<std::size_t> order;
    std::vector<std::size_t> seen;
    for (std::size_t i = 0; i < 50; ++i) {
      pipes.push_back(make_pipe());
      order.push_back(i);
    }
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      loop.add(pipes[i].reader.get(), EPOLLIN, [&, i](std::uint32_t) {
        seen.push_back(i);
        loop.remove(pipes[i].reader.get());
      });
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) put(pipes[i]);
    while (seen.size() < pipes.size()) loop.run_once();
    CHECK(seen == order);
  }
}

TEST_CASE("EventLoop: more ready descriptors than one look returns are all served") {
  EventLoop loop;
  constexpr std::size_t kMany = 200;
  std::vector<Pipe> pipes;
  std::vector<std::size_t> seen;
  for (std::size_t i = 0; i < kMany; ++i) pipes.push_back(make_pipe());
  for (std::size_t i = 0; i < kMany; ++i) {
    loop.add(pipes[i].reader.get(), EPOLLIN, [&, i](std::uint32_t) {
      take(pipes[i]);
      seen.push_back(i);
    });
    put(pipes[i]);
  }
  for (int round = 0; round < 4; ++round) loop.run_once();
  CHECK(seen.size() == kMany);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
}

TEST_CASE("EventLoop: a handler may remove itself and goes on living until it returns") {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  put(pipe);
  auto alive = std::make_shared<std::string>("alive");
  const std::weak_ptr<std::string> watched = alive;
  std::string seen;
  loop.add(pipe.reader.get(), EPOLLIN, [&loop, &pipe, &seen, kept = std::move(alive)](std::uint32_t) {
    loop.remove(pipe.reader.get());
    seen = *kept;
  });
  loop.run_once();
  CHECK(seen == "alive");
  CHECK(watched.expired());
  run_round(loop);
}

TEST_CASE("EventLoop: a handler may remove another one that is ready as well") {
  EventLoop loop;
  const std::vector<Pipe> pipes = [] {
    std::vector<Pipe> made;
    for (int i = 0; i < 3; ++i) made.push_back(make_pipe());
    return made;
  }();
  std::vector<std::size_t> seen;
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    loop.add(pipes[i].reader.get(), EPOLLIN, [&, i](std::uint32_t) {
      seen.push_back(i);
      for (const Pipe& other : pipes) loop.remove(other.reader.get());
    });
    put(pipes[i]);
  }
  loop.run_once();
  run_round(loop);
  CHECK_THAT(seen, ElementsAre(0));
}

TEST_CASE("EventLoop: an event of a closed descriptor does not reach who got its number") {
  EventLoop loop;
  const Pipe first = make_pipe();
  Pipe second = make_pipe();
  const int number = second.reader.get();
  std::string seen;
  std::optional<Pipe> third;
  loop.add(first.reader.get(), EPOLLIN, [&](std::uint32_t) {
    loop.remove(first.reader.get());
    loop.remove(number);
    second.reader.reset();
    third.emplace(make_pipe());
    REQUIRE(third->reader.get() == number);
    loop.add(number, EPOLLIN, [&](std::uint32_t) { seen += "new"; });
  });
  loop.add(number, EPOLLIN, [&](std::uint32_t) { seen += "old"; });
  put(first);
  put(second);
  loop.run_once();
  run_round(loop);
  CHECK(seen == "");
  put(*third);
  loop.run_once();
  CHECK(seen == "new");
}

TEST_CASE("EventLoop: what is waited for can be changed and removed, also twice") {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  int calls = 0;
  put(pipe);
  loop.add(pipe.reader.get(), 0, [&](std::uint32_t) { ++calls; });
  run_round(loop);
  CHECK(calls == 0);
  loop.change(pipe.reader.get(), EPOLLIN);
  loop.run_once();
  CHECK(calls == 1);
  loop.remove(pipe.reader.get());
  loop.remove(pipe.reader.get());
  loop.remove(12'345);
  run_round(loop);
  CHECK(calls == 1);
}

TEST_CASE("EventLoop: what cannot be watched is refused by its number, and nothing of it stays") {
  EventLoop loop;
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK_THROWS_WITH(loop.add(file.get(), EPOLLIN, [](std::uint32_t) {}),
                    "cannot watch descriptor " + std::to_string(file.get()) + ": Operation not permitted");
  CHECK_THROWS_WITH(loop.add(-1, EPOLLIN, [](std::uint32_t) {}), "cannot watch descriptor -1: Bad file descriptor");
  const Pipe pipe = make_pipe();
  int calls = 0;
  loop.add(pipe.reader.get(), EPOLLIN, [&](std::uint32_t) { ++calls; });
  CHECK_THROWS_AS(loop.add(pipe.reader.get(), EPOLLIN, [](std::uint32_t) {}), LaunchError);
  put(pipe);
  loop.run_once();
  CHECK(calls == 1);
}

TEST_CASE("EventLoop: timers come in the order of their times, and of their making at one time") {
  EventLoop loop;
  std::mt19937 random(5);
  const auto now = Clock::now();
  std::vector<std::pair<int, int>> seen;
  std::vector<std::pair<int, int>> expected;
  for (int i = 0; i < 500; ++i) {
    const int time = static_cast<int>(random() % 20);
    expected.emplace_back(time, i);
    loop.call_at(now - 1s + std::chrono::milliseconds(time), [&, time, i] { seen.emplace_back(time, i); });
  }
  std::sort(expected.begin(), expected.end());
  loop.run_once();
  CHECK(seen == expected);
}

TEST_CASE("EventLoop: a timer never comes before its time, and once") {
  EventLoop loop;
  std::vector<Clock::duration> late;
  for (int i = 0; i < 20; ++i) {
    const auto when = Clock::now() + std::chrono::microseconds(700 * i);
    loop.call_at(when, [&late, when] { late.push_back(Clock::now() - when); });
  }
  while (late.size() < 20) loop.run_once();
  for (const auto& time : late) CHECK(time >= Clock::duration::zero());
  run_round(loop);
  CHECK(late.size() == 20);
}

TEST_CASE("EventLoop: a timer can be cancelled by another one of the same instant, by itself, and twice") {
  EventLoop loop;
  std::vector<std::string> seen;
  const auto when = Clock::now();
  std::optional<EventLoop::TimerId> second;
  EventLoop::TimerId first = loop.call_at(when, [&] {
    seen.emplace_back("first");
    loop.cancel(first);
    loop.cancel(*second);
    loop.cancel(*second);
  });
  second = loop.call_at(when, [&] { seen.emplace_back("second"); });
  loop.call_at(when, [&] { seen.emplace_back("third"); });
  loop.run_once();
  run_round(loop);
  CHECK_THAT(seen, ElementsAre("first", "third"));
  loop.cancel(first);
}

TEST_CASE("EventLoop: a timer that sets itself anew does not keep the descriptors waiting") {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  bool is_served = false;
  loop.add(pipe.reader.get(), EPOLLIN, [&](std::uint32_t) { is_served = true; });
  int calls = 0;
  std::function<void()> again = [&] {
    if (++calls == 3) put(pipe);
    if (!is_served && calls < 100'000) loop.call_at(Clock::now(), again);
  };
  loop.call_at(Clock::now(), again);
  while (!is_served && calls < 100'000) loop.run_once();
  CHECK(is_served);
}

TEST_CASE("EventLoop: a timer far away does not come at once") {
  EventLoop loop;
  bool has_come = false;
  loop.call_at(Clock::time_point::max(), [&] { has_come = true; });
  loop.call_at(Clock::now() + 24h * 365 * 100, [&] { has_come = true; });
  run_round(loop);
  CHECK_FALSE(has_come);
}

TEST_CASE("EventLoop: a signal that interrupts the wait is neither an event nor an error") {
  struct sigaction quiet {};
  quiet.sa_handler = [](int) {};
  struct sigaction before {};
  REQUIRE(::sigaction(SIGALRM, &quiet, &before) == 0);
  const itimerval alarm{.it_interval = {0, 1'000}, .it_value = {0, 1'000}};
  REQUIRE(::setitimer(ITIMER_REAL, &alarm, nullptr) == 0);
  EventLoop loop;
  bool has_come = false;
  const auto when = Clock::now() + 30ms;
  loop.call_at(when, [&] { has_come = true; });
  while (!has_come) loop.run_once();
  CHECK(Clock::now() >= when);
  const itimerval none{};
  ::setitimer(ITIMER_REAL, &none, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
}

TEST_CASE("EventLoop: what a handler throws comes out, and the loop goes on") {
  EventLoop loop;
  const Pipe pipe = make_pipe();
  put(pipe);
  int calls = 0;
  loop.add(pipe.reader.get(), EPOLLIN, [&](std::uint32_t) {
    if (++calls == 1) throw LaunchError("told");
  });
  CHECK_THROWS_WITH(loop.run_once(), "told");
  loop.run_once();
  CHECK(calls == 2);
}

}  // namespace
}  // namespace launcher
