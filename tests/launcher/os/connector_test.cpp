#include "launcher/os/network/connector.h"

#include <sys/socket.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "launcher/os/network/tcp_socket.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Clock = EventLoop::Clock;

class ConnectorTest {
 protected:
  template <typename Condition>
  void run_until(const Condition& condition, std::chrono::milliseconds limit = 20s) {
    bool is_late = false;
    const auto timer = loop.call_at(Clock::now() + limit, [&] { is_late = true; });
    while (!condition() && !is_late) {
      note_children();
      loop.run_once();
    }
    loop.cancel(timer);
    REQUIRE_FALSE(is_late);
  }
  void run_for(std::chrono::milliseconds time) {
    const auto end = Clock::now() + time;
    loop.call_at(end, [] {});
    run_until([&] { return Clock::now() >= end; });
  }
  void note_children() {
    std::ifstream list("/proc/thread-self/children");
    for (int pid = 0; list >> pid;) children.insert(pid);
  }
  std::unique_ptr<Connector> connect(const std::string& host, std::uint16_t port) {
    return std::make_unique<Connector>(loop, host, port, [this](UniqueFd fd) { got = std::move(fd); });
  }

  EventLoop loop;
  UniqueFd got;
  std::set<int> children;
};

TEST_CASE_METHOD(ConnectorTest, "Connector: whoever begins to listen is found within a small part of the wait") {
  const std::uint16_t port = free_port();
  const auto connector = connect("127.0.0.1", port);
  run_for(160ms);
  CHECK(connector->problem() == "Connection refused");
  CHECK_FALSE(got);
  const UniqueFd listener = listen_or_throw(port, true);
  const auto begin = Clock::now();
  run_until([&] { return static_cast<bool>(got); });
  CHECK(Clock::now() - begin < 100ms);  // the pauses are of 10 ms by then
  CHECK(connector->problem() == "");
}

TEST_CASE("Connector: pauses are short while whoever waits still watches, and a small part of a long wait") {
  CHECK(Connector::pause_after(1ms) == 2ms);
  CHECK(Connector::pause_after(160ms) == 10ms);
  CHECK(Connector::pause_after(3s) == 20ms);
  CHECK(Connector::pause_after(51'200ms) == 100ms);
  CHECK(Connector::pause_after(1h) == 200ms);
  CHECK(Connector::pause_after(3s, 100ms) == 100ms);  // of a large job
}

TEST_CASE_METHOD(ConnectorTest, "Connector: an address in numbers needs no resolver process") {
  const auto connector = connect("127.0.0.1", free_port());
  run_for(200ms);
  CHECK(children.empty());
}

TEST_CASE_METHOD(ConnectorTest, "Connector: a name is resolved once for many attempts") {
  const std::uint16_t port = free_port();
  const auto connector = connect("localhost", port);
  run_until([&] { return !connector->problem().empty(); });
  run_for(300ms);
  CHECK(connector->problem() == "Connection refused");
  CHECK(children.size() <= 1U);
}

TEST_CASE_METHOD(ConnectorTest, "Connector: what the kernel refuses at once is tried again") {
  const auto connector = connect("255.255.255.255", 1);
  run_until([&] { return !connector->problem().empty(); });
  run_for(100ms);
  CHECK_FALSE(got);
}

TEST_CASE_METHOD(ConnectorTest, "Connector: connects once more when asked to") {
  const UniqueFd listener = listen_or_throw(0, true);
  const auto connector = connect("127.0.0.1", port_of(listener.get()));
  run_until([&] { return static_cast<bool>(got); });
  got.reset();
  run_for(20ms);
  CHECK_FALSE(got);
  connector->retry("it was somebody else");
  CHECK(connector->problem() == "it was somebody else");
  run_until([&] { return static_cast<bool>(got); });
}

}  // namespace
}  // namespace launcher
