#include "launcher/nodes/store/store_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"
#include "tests/launcher/remembered_messages.h"
#include "tests/launcher/wire.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

class StoreServerTest {
 protected:
  void open(ServerOptions options = {}) { server_.emplace(loop_, messages_, std::move(options)); }
  UniqueFd connect() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_->port());
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return fd;
  }
  static void send(const UniqueFd& fd, const std::string& bytes) {
    REQUIRE(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  void round() {
    loop_.call_at(EventLoop::Clock::now(), [] {});
    loop_.run_once();
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto limit = EventLoop::Clock::now() + 20s;
    while (!condition() && EventLoop::Clock::now() < limit) round();
    return condition();
  }
  // What the server answers, `size` bytes or up to its end.
  std::string answer(const UniqueFd& fd, std::size_t size) {
    std::string bytes;
    bool has_ended = false;
    run_until([&] {
      std::string part(size - bytes.size(), '\0');
      const ssize_t count = ::recv(fd.get(), part.data(), part.size(), MSG_DONTWAIT);
      has_ended = count == 0;
      if (count > 0) bytes.append(part, 0, static_cast<std::size_t>(count));
      return has_ended || bytes.size() == size;
    });
    return bytes;
  }
  bool is_closed(const UniqueFd& fd) {
    return run_until([&] {
      char byte = 0;
      const ssize_t count = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
      return count == 0 || (count < 0 && errno == ECONNRESET);
    });
  }

  EventLoop loop_;
  RememberedMessages messages_;
  std::optional<StoreServer> server_;
};

TEST_CASE_METHOD(StoreServerTest, "StoreServer: a taken port is named, with what to do") {
  open();
  const std::uint16_t port = server_->port();
  CHECK_THROWS_WITH(
      StoreServer(loop_, messages_, {.port = port}),
      "port " + std::to_string(port) + " is in use by another program; choose another one with --master_port");
  CHECK_THROWS_AS(StoreServer(loop_, messages_, {.port = port, .where = {ListenAt::Kind::kAnyAddress}}), LaunchError);
  server_.reset();
  CHECK_NOTHROW(open({.port = port}));
}

TEST_CASE_METHOD(StoreServerTest, "StoreServer: what clients write can be looked up, and what is missing is empty") {
  open();
  const UniqueFd client = connect();
  send(client, wire::hello() + wire::set("key", std::string("a\0b", 3)) + wire::add("count", 4));
  CHECK(answer(client, 8) == wire::integer(std::int64_t{4}));
  CHECK(server_->look_up("key") == std::string("a\0b", 3));
  CHECK(server_->look_up("missing") == "");
}

TEST_CASE_METHOD(StoreServerTest,
                 "StoreServer: requests that come byte by byte are answered like those that come at once") {
  open();
  const UniqueFd client = connect();
  const std::string requests = wire::hello() + wire::set("key", "value") + wire::with_key(Opcode::kGet, "key") +
                               wire::with_keys(Opcode::kCheck, {"key"}) + wire::add("count", -1);
  const std::string expected = wire::text("value") + std::string(1, '\0') + wire::integer(std::int64_t{-1});
  for (const char byte : requests) {
    send(client, std::string(1, byte));
    round();
  }
  CHECK(answer(client, expected.size()) == expected);
}

TEST_CASE_METHOD(StoreServerTest,
                 "StoreServer: who does not speak the protocol is closed and named, the ninth no more") {
  open();
  for (int i = 0; i < 12; ++i) {
    const UniqueFd stranger = connect();
    send(stranger, "GET / HTTP/1.1\r\n\r\n");
    CHECK(is_closed(stranger));
  }
  REQUIRE(messages_.lines.size() == 8);
  CHECK_THAT(messages_.lines[0], ContainsSubstring("the store closed the connection of 127.0.0.1 port ") &&
                                     ContainsSubstring("its first bytes are not those of a torch store client"));
  CHECK_THAT(messages_.lines[7], ContainsSubstring("(further ones are not reported)"));
  CHECK(server_->connections() == 0);
}

TEST_CASE_METHOD(StoreServerTest, "StoreServer: an error of one client changes nothing for the others") {
  open();
  const UniqueFd good = connect();
  const UniqueFd bad = connect();
  send(good, wire::hello() + wire::with_keys(Opcode::kWait, {"key"}));
  send(bad, wire::hello() + wire::set("key2", "text") + wire::add("key2", 1) + wire::set("key", "never"));
  CHECK(is_closed(bad));
  CHECK(messages_.lines.size() == 1);
  CHECK_THAT(messages_.lines[0], ContainsSubstring("add to a value that is not a number"));
  CHECK(server_->look_up("key") == "");
  const UniqueFd other = connect();
  send(other, wire::hello() + wire::set("key", "now"));
  CHECK(answer(good, 1) == std::string(1, '\0'));
}

TEST_CASE_METHOD(StoreServerTest, "StoreServer: a held connection is read only after its release") {
  std::vector<std::uint16_t> ports;
  open({.on_connection = [&](std::uint16_t port) {
    ports.push_back(port);
    return ports.size() == 1;
  }});
  const UniqueFd held = connect();
  REQUIRE(run_until([&] { return ports.size() == 1; }));
  const UniqueFd other = connect();
  send(held, wire::hello() + wire::set("key", "held"));
  send(other, wire::hello() + wire::add("count", 1));
  CHECK(answer(other, 8) == wire::integer(std::int64_t{1}));
  CHECK(ports == std::vector{port_of(held.get()), port_of(other.get())});
  CHECK(server_->look_up("key") == "");
  server_->release();
  CHECK(run_until([&] { return server_->look_up("key") == "held"; }));
  server_->release();
}

TEST_CASE_METHOD(StoreServerTest, "StoreServer: a held connection that goes away before its release is forgotten") {
  open({.on_connection = [](std::uint16_t) { return true; }});
  UniqueFd held = connect();
  REQUIRE(run_until([&] { return server_->connections() == 1; }));
  // With a reset, as of a process that is killed with bytes unread.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(held.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  held.reset();
  CHECK(run_until([&] { return server_->connections() == 0; }));
  server_->release();
  CHECK(messages_.lines.empty());
}

TEST_CASE_METHOD(StoreServerTest,
                 "StoreServer: who asks without reading the answers is not read any more, and loses none") {
  open();
  const UniqueFd client = connect();
  const std::string value(100'000, 'v');
  send(client, wire::hello() + wire::set("key", value));
  constexpr int kRequests = 200;
  for (int i = 0; i < kRequests; ++i) {
    send(client, wire::with_key(Opcode::kGet, "key"));
    round();
  }
  const std::string expected = wire::text(value);
  for (int i = 0; i < kRequests; ++i) REQUIRE(answer(client, expected.size()) == expected);
}

TEST_CASE_METHOD(StoreServerTest, "StoreServer: a waiter that is gone is not woken, and the key is set all the same") {
  open();
  UniqueFd waiter = connect();
  send(waiter, wire::hello() + wire::add("asked", 1) + wire::with_keys(Opcode::kWait, {"key"}));
  CHECK(answer(waiter, 8) == wire::integer(std::int64_t{1}));
  waiter.reset();
  CHECK(run_until([&] { return server_->connections() == 0; }));
  const UniqueFd setter = connect();
  send(setter, wire::hello() + wire::set("key", "value") + wire::add("asked", 1));
  CHECK(answer(setter, 8) == wire::integer(std::int64_t{2}));
  CHECK(server_->look_up("key") == "value");
}

TEST_CASE("TcpSocket: ports and peers of what is no connection") {
  CHECK(port_of(-1) == 0);
  CHECK(peer_of(-1) == "a connection");
  const UniqueFd listener = listen_on(AF_INET, 0, true);
  CHECK(port_of(listener.get()) != 0);
  CHECK(peer_of(listener.get()) == "a connection");
  const std::uint16_t port = free_port();
  CHECK(listen_or_throw(port, true));
}

}  // namespace
}  // namespace launcher::store
