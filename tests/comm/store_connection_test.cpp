// A client of the store keeps to its limits, whatever the store does.
#include "comm/core/store_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Accepts into its backlog and never answers, as a stopped process does.
class FrozenStore {
 public:
  explicit FrozenStore(uint16_t port = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const int on = 1;
    CHECK(::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    CHECK(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0);
    CHECK(::listen(fd_, 8) == 0);
    CHECK(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~FrozenStore() { ::close(fd_); }
  FrozenStore(const FrozenStore&) = delete;
  FrozenStore& operator=(const FrozenStore&) = delete;

  uint16_t port() const { return port_; }
  int accept() const { return ::accept(fd_, nullptr, nullptr); }

 private:
  int fd_;
  uint16_t port_ = 0;
};

void expect_gives_up(const std::function<void()>& call, Clock::duration longest) {
  const auto begin = Clock::now();
  CHECK_THROWS_AS(call(), StoreUnreachable);
  CHECK(Clock::now() - begin < longest);
}

constexpr auto kLimit = 100ms;
constexpr auto kForHangs = 10s;

TEST_CASE("StoreConnection: every call to a frozen store ends at its limit") {
  const FrozenStore store;
  const std::vector<std::function<void(StoreConnection&)>> calls{
      [](StoreConnection& connection) { connection.get("key", kLimit); },
      [](StoreConnection& connection) { connection.check({"key"}, kLimit); },
      [](StoreConnection& connection) { connection.add("key", 1, kLimit); },
      [](StoreConnection& connection) { connection.compare_set("key", "", "value", kLimit); },
      [](StoreConnection& connection) { connection.delete_key("key", kLimit); },
      [](StoreConnection& connection) { connection.number_of_keys(kLimit); },
      [](StoreConnection& connection) { connection.wait({"key"}, kLimit); },
      // More than the socket's buffers hold.
      [](StoreConnection& connection) { connection.set("key", std::string(64 << 20, 'x'), kLimit); }};
  for (const auto& call : calls) {
    StoreConnection connection("127.0.0.1", store.port(), kForHangs);
    expect_gives_up([&] { call(connection); }, kForHangs);
    // It is broken, and says so at once.
    expect_gives_up([&] { connection.check({"key"}, kForHangs); }, kForHangs);
  }
}

TEST_CASE("StoreConnection: a store that closes is noticed") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  ::close(store.accept());
  expect_gives_up([&] { connection.wait({"key"}, std::chrono::hours(1)); }, kForHangs);
}

TEST_CASE("StoreConnection: a port where nothing listens is refused") {
  uint16_t port = 0;
  {
    const FrozenStore gone;
    port = gone.port();
  }
  expect_gives_up([&] { StoreConnection("127.0.0.1", port, kForHangs); }, kForHangs);
}

TEST_CASE("StoreConnection: a patient one waits for a store that is still to come and no longer than its limit") {
  auto gone = std::make_unique<FrozenStore>();
  const uint16_t port = gone->port();
  gone.reset();
  expect_gives_up([&] { StoreConnection("127.0.0.1", port, kLimit, /*patient=*/true); }, kForHangs);
  std::unique_ptr<StoreConnection> connection;
  std::thread connecting(
      [&] { connection = std::make_unique<StoreConnection>("127.0.0.1", port, kForHangs, /*patient=*/true); });
  const FrozenStore late(port);
  connecting.join();
  CHECK(connection);
}

TEST_CASE("StoreConnection: an interrupt ends a call that waits for its answer") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  std::thread interrupting([&] {
    const int peer = store.accept();
    char hello[5 + 1];
    RANK_CHECK(::recv(peer, hello, sizeof hello, MSG_WAITALL) == static_cast<ssize_t>(sizeof hello));
    connection.interrupt();
  });
  expect_gives_up([&] { connection.get("key", std::chrono::hours(1)); }, kForHangs);
  interrupting.join();
  test::report_rank_checks();
}

TEST_CASE("StoreConnection: a wait is ended by an interrupt and others are not held up by it for ever") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  StoreConnection::Wait outcome = StoreConnection::Wait::kReady;
  std::thread waiting([&] { outcome = connection.wait({"key"}, std::chrono::hours(1)); });
  const int peer = store.accept();
  // The request has arrived, so the wait is under way.
  char request[22];
  CHECK(::recv(peer, request, sizeof request, MSG_WAITALL) == static_cast<ssize_t>(sizeof request));
  expect_gives_up([&] { connection.check({"key"}, kLimit); }, kForHangs);
  connection.interrupt();
  waiting.join();
  CHECK(outcome == StoreConnection::Wait::kInterrupted);
  ::close(peer);
}

TEST_CASE("StoreConnection: a length that no store sends is refused before it is allocated") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  const int peer = store.accept();
  const std::string huge(8, '\x7f');
  CHECK(::send(peer, huge.data(), huge.size(), MSG_NOSIGNAL) == 8);
  expect_gives_up([&] { connection.get("key", kForHangs); }, kForHangs);
  ::close(peer);
}

}  // namespace
}  // namespace ddp::detail
