#include "launcher/nodes/store/store_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/line.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher::store {
namespace {

using namespace std::chrono_literals;
using ddp::test::ElementsAre;

// Runs the loop until `condition`; false when that takes longer than any machine needs.
bool run_until(EventLoop& loop, const std::function<bool()>& condition) {
  bool late = false;
  const auto timer = loop.call_at(EventLoop::Clock::now() + 20s, [&late] { late = true; });
  while (!condition() && !late) loop.run_once();
  loop.cancel(timer);
  return !late;
}

class StoreClientTest {
 protected:
  std::unique_ptr<StoreClient> connect(std::uint16_t port, const std::string& host = "127.0.0.1") {
    return std::make_unique<StoreClient>(loop_, host, port, [this] { ++lost_; });
  }
  EventLoop loop_;
  StderrMessages messages_;
  int lost_ = 0;
};

// A server that says what the test wants.
class FakeServer {
 public:
  explicit FakeServer(EventLoop& loop) : loop_(loop), listener_(listen_or_throw(0, true)) {}
  std::uint16_t port() const { return port_of(listener_.get()); }
  bool accept() {
    return run_until(loop_, [this] {
      peer_.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      return static_cast<bool>(peer_);
    });
  }
  void send(std::string_view bytes) const {
    REQUIRE(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  void hang_up() { peer_.reset(); }

 private:
  EventLoop& loop_;
  UniqueFd listener_;
  UniqueFd peer_;
};

TEST_CASE_METHOD(StoreClientTest, "StoreClient: every request is answered, in the order of the requests") {
  StoreServer server(loop_, messages_, {});
  const auto client = connect(server.port());
  std::vector<std::string> answers;
  client->set("key", "value");  // before there is a connection
  client->add("count", 5, [&](std::int64_t sum) { answers.push_back(std::to_string(sum)); });
  client->get("key", [&](std::string text) { answers.push_back(std::move(text)); });
  client->compare_set("new", "", "mine", [&](std::string text) { answers.push_back(std::move(text)); });
  client->compare_set("new", "", "yours", [&](std::string text) { answers.push_back(std::move(text)); });
  client->wait("key", [&] { answers.emplace_back("ready"); });
  client->add("count", -7, [&](std::int64_t sum) { answers.push_back(std::to_string(sum)); });
  CHECK(run_until(loop_, [&] { return answers.size() == 6; }));
  CHECK_THAT(answers, ElementsAre("5", "value", "mine", "mine", "ready", "-2"));
  CHECK(client->is_connected());
  CHECK(client->problem() == "");
  CHECK(lost_ == 0);
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: a callback may ask again") {
  StoreServer server(loop_, messages_, {});
  const auto client = connect(server.port());
  std::int64_t last = 0;
  const std::function<void(std::int64_t)> again = [&](std::int64_t sum) {
    last = sum;
    if (sum < 100) client->add("count", 1, again);
  };
  client->add("count", 1, again);
  CHECK(run_until(loop_, [&] { return last == 100; }));
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: waits for a key that another one sets") {
  StoreServer server(loop_, messages_, {});
  const auto waiter = connect(server.port());
  const auto setter = connect(server.port());
  bool is_ready = false;
  bool has_asked = false;
  waiter->add("asked", 1, [&](std::int64_t) { has_asked = true; });
  waiter->wait("key", [&] { is_ready = true; });
  CHECK(run_until(loop_, [&] { return has_asked; }));
  CHECK_FALSE(is_ready);
  setter->set("key", "");
  CHECK(run_until(loop_, [&] { return is_ready; }));
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: values with any byte, empty ones and long ones come back unchanged") {
  StoreServer server(loop_, messages_, {});
  const auto client = connect(server.port());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  for (const std::string& value : {std::string(), all, std::string(900'000, 'v')}) {
    std::string got = "nothing";
    client->set(all, value);
    client->get(all, [&](std::string text) { got = std::move(text); });
    CHECK(run_until(loop_, [&] { return got == value; }));
  }
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: tries again until somebody listens") {
  const std::uint16_t port = free_port();
  const auto client = connect(port);
  std::int64_t sum = 0;
  client->add("count", 3, [&](std::int64_t value) { sum = value; });
  CHECK(run_until(loop_, [&] { return !client->problem().empty(); }));
  CHECK(client->problem() == "Connection refused");
  CHECK_FALSE(client->is_connected());
  StoreServer server(loop_, messages_, {.port = port});
  CHECK(run_until(loop_, [&] { return sum == 3; }));
  CHECK(client->problem() == "");
  CHECK(lost_ == 0);
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: an address that cannot be reached at once is tried again, not lost") {
  const auto client = connect(1, "255.255.255.255");
  CHECK(run_until(loop_, [&] { return !client->problem().empty() || lost_ > 0; }));
  CHECK(lost_ == 0);
  CHECK_FALSE(client->is_connected());
  CHECK(client->problem() != "");
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: a name that cannot be resolved is said") {
  const auto client = connect(1, "no-such-host.invalid");
  CHECK(run_until(loop_, [&] { return !client->problem().empty(); }));
  CHECK(client->problem() == "the name no-such-host.invalid cannot be resolved");
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: a connection that breaks is lost once, and nothing is answered then") {
  FakeServer server(loop_);
  const auto client = connect(server.port());
  int answers = 0;
  client->get("key", [&](const std::string&) { ++answers; });
  REQUIRE(server.accept());
  CHECK(run_until(loop_, [&] { return client->is_connected(); }));
  server.send(std::string("\x05\0\0\0\0\0\0\0abc", 11));  // in the middle of an answer
  server.hang_up();
  CHECK(run_until(loop_, [&] { return lost_ > 0; }));
  CHECK_FALSE(client->is_connected());
  client->add("count", 1, [&](std::int64_t) { ++answers; });
  client->set("key", "value");
  bool is_over = false;
  loop_.call_at(EventLoop::Clock::now() + 300ms, [&] { is_over = true; });  // longer than it waits between attempts
  CHECK(run_until(loop_, [&] { return is_over; }));
  CHECK(lost_ == 1);
  CHECK(answers == 0);
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: answers may come byte by byte and several at once") {
  FakeServer server(loop_);
  const auto client = connect(server.port());
  std::vector<std::string> answers;
  client->get("key", [&](std::string text) { answers.push_back(std::move(text)); });
  client->add("count", 1, [&](std::int64_t sum) { answers.push_back(std::to_string(sum)); });
  client->wait("key", [&] { answers.emplace_back("ready"); });
  REQUIRE(server.accept());
  std::string bytes;
  append_text(bytes, "text");
  append_integer(bytes, std::int64_t{-2});
  bytes.push_back('\0');
  for (const char byte : bytes) {
    server.send(std::string_view(&byte, 1));
    bool is_over = false;
    loop_.call_at(EventLoop::Clock::now(), [&] { is_over = true; });
    run_until(loop_, [&] { return is_over; });
  }
  CHECK(run_until(loop_, [&] { return answers.size() == 3; }));
  CHECK_THAT(answers, ElementsAre("text", "-2", "ready"));
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: a server that announces more than a store would is left") {
  FakeServer server(loop_);
  const auto client = connect(server.port());
  client->get("key", [](const std::string&) { FAIL("no answer was complete"); });
  REQUIRE(server.accept());
  server.send("HTTP/1.1 400 Bad Request\r\n\r\n");
  CHECK(run_until(loop_, [&] { return lost_ == 1; }));
}

TEST_CASE_METHOD(StoreClientTest, "StoreClient: may go at any time") {
  StoreServer server(loop_, messages_, {});
  int answers = 0;
  for (int steps = 0; steps < 12; ++steps) {
    const auto client = connect(server.port());
    client->add("count", 1, [&](std::int64_t) { ++answers; });
    bool is_over = false;
    for (int i = 0; i < steps; ++i) {
      const auto timer = loop_.call_at(EventLoop::Clock::now() + 50ms, [&] { is_over = true; });
      loop_.run_once();
      loop_.cancel(timer);
    }
  }
  CHECK(run_until(loop_, [&] { return server.connections() == 0; }));
  CHECK(lost_ == 0);
}

}  // namespace
}  // namespace launcher::store
