// A client of the store keeps to its limits, whatever the store does.
#include "comm/store_connection.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>

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
    EXPECT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
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
  EXPECT_THROW(call(), StoreUnreachable);
  EXPECT_LT(Clock::now() - begin, longest);
}

constexpr auto kLimit = 100ms;
constexpr auto kForHangs = 10s;

TEST(StoreConnection, every_call_to_a_frozen_store_ends_at_its_limit) {
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

TEST(StoreConnection, a_store_that_closes_is_noticed) {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  ::close(store.accept());
  expect_gives_up([&] { connection.wait({"key"}, std::chrono::hours(1)); }, kForHangs);
}

TEST(StoreConnection, a_port_where_nothing_listens_is_refused) {
  uint16_t port = 0;
  {
    const FrozenStore gone;
    port = gone.port();
  }
  expect_gives_up([&] { StoreConnection("127.0.0.1", port, kForHangs); }, kForHangs);
}

TEST(StoreConnection, a_patient_one_waits_for_a_store_that_is_still_to_come_and_no_longer_than_its_limit) {
  auto gone = std::make_unique<FrozenStore>();
  const uint16_t port = gone->port();
  gone.reset();
  expect_gives_up([&] { StoreConnection("127.0.0.1", port, kLimit, /*patient=*/true); }, kForHangs);
  std::unique_ptr<StoreConnection> connection;
  std::thread connecting(
      [&] { connection = std::make_unique<StoreConnection>("127.0.0.1", port, kForHangs, /*patient=*/true); });
  const FrozenStore late(port);
  connecting.join();
  EXPECT_TRUE(connection);
}

TEST(StoreConnection, an_interrupt_ends_a_call_that_waits_for_its_answer) {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  std::thread interrupting([&] {
    const int peer = store.accept();
    char hello[5 + 1];
    EXPECT_EQ(::recv(peer, hello, sizeof hello, MSG_WAITALL), static_cast<ssize_t>(sizeof hello));
    connection.interrupt();
  });
  expect_gives_up([&] { connection.get("key", std::chrono::hours(1)); }, kForHangs);
  interrupting.join();
}

TEST(StoreConnection, a_wait_is_ended_by_an_interrupt_and_others_are_not_held_up_by_it_for_ever) {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  StoreConnection::Wait outcome = StoreConnection::Wait::kReady;
  std::thread waiting([&] { outcome = connection.wait({"key"}, std::chrono::hours(1)); });
  const int peer = store.accept();
  // The request has arrived, so the wait is under way.
  char request[22];
  EXPECT_EQ(::recv(peer, request, sizeof request, MSG_WAITALL), static_cast<ssize_t>(sizeof request));
  expect_gives_up([&] { connection.check({"key"}, kLimit); }, kForHangs);
  connection.interrupt();
  waiting.join();
  EXPECT_EQ(outcome, StoreConnection::Wait::kInterrupted);
  ::close(peer);
}

TEST(StoreConnection, a_length_that_no_store_sends_is_refused_before_it_is_allocated) {
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kForHangs);
  const int peer = store.accept();
  const std::string huge(8, '\x7f');
  EXPECT_EQ(::send(peer, huge.data(), huge.size(), MSG_NOSIGNAL), 8);
  expect_gives_up([&] { connection.get("key", kForHangs); }, kForHangs);
  ::close(peer);
}

}  // namespace
}  // namespace ddp::detail
