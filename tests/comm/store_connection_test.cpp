// A client of the store keeps to its limits, whatever the store does.
#include "comm/core/store_connection.h"

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/frozen_store.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void expect_gives_up(const std::function<void()>& call, Clock::duration longest) {
  const auto begin = Clock::now();
  CHECK_THROWS_AS(call(), StoreUnreachable);
  CHECK(Clock::now() - begin < longest);
}

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
    StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
    expect_gives_up([&] { call(connection); }, kHangLimit);
    // The connection is of no use any more; every later call says so at once, and why.
    const auto begin = Clock::now();
    CHECK_THROWS_MATCHES(connection.check({"key"}, kHangLimit), StoreUnreachable,
                         Catch::Matchers::MessageMatches(Catch::Matchers::EndsWith(
                             ": an earlier call has closed the connection: it does not answer")));
    CHECK(Clock::now() - begin < kHangLimit);
  }
}

TEST_CASE("StoreConnection: a store that closes is noticed") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  ::close(store.accept());
  expect_gives_up([&] { connection.wait({"key"}, std::chrono::hours(1)); }, kHangLimit);
}

TEST_CASE("StoreConnection: a port where nothing listens is refused") {
  const FrozenStore gone(/*listens=*/false);
  expect_gives_up([&] { StoreConnection("127.0.0.1", gone.port(), kHangLimit); }, kHangLimit);
}

TEST_CASE("StoreConnection: a patient one waits for a store that is still to come and no longer than its limit") {
  const FrozenStore late(/*listens=*/false);
  const uint16_t port = late.port();
  expect_gives_up([&] { StoreConnection("127.0.0.1", port, kLimit, /*patient=*/true); }, kHangLimit);
  std::unique_ptr<StoreConnection> connection;
  std::thread connecting(
      [&] { connection = std::make_unique<StoreConnection>("127.0.0.1", port, kHangLimit, /*patient=*/true); });
  late.listen();
  connecting.join();
  CHECK(connection);
}

TEST_CASE("StoreConnection: a patient one does not wait for a loopback interface that is down") {
  std::string said;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) return;  // of this thread alone
    try {
      StoreConnection("127.0.0.1", 29500, kHangLimit, /*patient=*/true);
      said = "it connected";
    } catch (const StoreUnreachable& error) {
      said = error.what();
    }
  }).join();
  if (said.empty()) SKIP("no network namespace can be made");
  REQUIRE_THAT(said, Catch::Matchers::ContainsSubstring(
                         "Network is unreachable (the loopback interface is down; as root: ip link set lo up)"));
}

TEST_CASE("StoreConnection: an interrupt ends a call that waits for its answer") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  std::thread interrupting([&] {
    const int peer = store.accept();
    char hello[5 + 1];
    RANK_CHECK(::recv(peer, hello, sizeof hello, MSG_WAITALL) == static_cast<ssize_t>(sizeof hello));
    connection.interrupt();
  });
  expect_gives_up([&] { connection.get("key", std::chrono::hours(1)); }, kHangLimit);
  interrupting.join();
  test::report_rank_checks();
}

TEST_CASE("StoreConnection: a wait is ended by an interrupt and others are not held up by it for ever") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  StoreConnection::Wait outcome = StoreConnection::Wait::kReady;
  std::thread waiting([&] { outcome = connection.wait({"key"}, std::chrono::hours(1)); });
  const int peer = store.accept();
  // The request has arrived, so the wait is under way.
  char request[22];
  CHECK(::recv(peer, request, sizeof request, MSG_WAITALL) == static_cast<ssize_t>(sizeof request));
  expect_gives_up([&] { connection.check({"key"}, kLimit); }, kHangLimit);
  connection.interrupt();
  waiting.join();
  CHECK(outcome == StoreConnection::Wait::kInterrupted);
  ::close(peer);
}

TEST_CASE("StoreConnection: a length that no store sends is refused before it is allocated") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  const int peer = store.accept();
  const std::string huge(8, '\x7f');
  CHECK(::send(peer, huge.data(), huge.size(), MSG_NOSIGNAL) == 8);
  expect_gives_up([&] { connection.get("key", kHangLimit); }, kHangLimit);
  ::close(peer);
}

TEST_CASE("StoreConnection: an interrupt ends a call that cannot even send") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  std::thread interrupting([&] {
    const int peer = store.accept();
    char first = 0;
    RANK_CHECK(::recv(peer, &first, 1, 0) == 1);
    connection.interrupt();
  });
  // More than the socket's buffers hold.
  expect_gives_up([&] { connection.set("key", std::string(64 << 20, 'x'), std::chrono::hours(1)); }, kHangLimit);
  interrupting.join();
  test::report_rank_checks();
}

TEST_CASE("StoreConnection: after an interrupt every call ends at once") {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  connection.interrupt();
  CHECK(connection.wait({"key"}, std::chrono::hours(1)) == StoreConnection::Wait::kInterrupted);
  expect_gives_up([&] { connection.get("key", std::chrono::hours(1)); }, kHangLimit);
  expect_gives_up([&] { connection.add("key", 1, std::chrono::hours(1)); }, kHangLimit);
}

TEST_CASE("StoreConnection: a limit that is over already is over, and one that never ends does not overflow") {
  const FrozenStore store;
  for (const auto limit :
       {StoreConnection::Duration(0), StoreConnection::Duration(-1), StoreConnection::Duration::min()}) {
    StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
    expect_gives_up([&] { connection.get("key", limit); }, kHangLimit);
  }
  StoreConnection connection("127.0.0.1", store.port(), StoreConnection::Duration::max());
  ::close(store.accept());
}

TEST_CASE("StoreConnection: a host that does not exist is named") {
  CHECK_THROWS_MATCHES(
      StoreConnection("no host of this name", 1, kHangLimit), StoreUnreachable,
      Catch::Matchers::MessageMatches(Catch::Matchers::StartsWith("the job's store at no host of this name:1: ")));
}

TEST_CASE("StoreConnection: whoever hosts the store is named by every error") {
  CHECK_THROWS_MATCHES(
      StoreConnection("no host of this name", 1, kHangLimit, /*patient=*/false, "rank 0"), StoreUnreachable,
      Catch::Matchers::MessageMatches(
          Catch::Matchers::StartsWith("the job's store at no host of this name:1, which rank 0 hosts: ")));
}

}  // namespace
}  // namespace ddp::detail
