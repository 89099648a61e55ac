// A wait for keys lets calls of other threads pass over the same connection.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/store_protocol.h"
#include "comm/core/store_connection.h"
#include "tests/comm/frozen_store.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Wait = StoreConnection::Wait;

// Keys of equal length, so that requests about one key have one length.
const std::string kAwaited = "one";
const std::string kOther = "two";
const std::string kWaitRequest = store::request_bytes(store::Opcode::kWait, std::vector{kAwaited});
const std::string kLookRequest = store::request_bytes(store::Opcode::kCheck, std::vector{kAwaited});
const std::string kCheckRequest = store::request_bytes(store::Opcode::kCheck, std::vector{kOther});
const std::string kCancelRequest = store::request_bytes(store::Opcode::kCancelWait);
constexpr char kWaitHasEnded = static_cast<char>(store::kStopWaiting);
constexpr char kWaitWasCancelled = static_cast<char>(store::kWaitCanceled);
constexpr char kIsThere = static_cast<char>(store::kReady);
constexpr char kIsMissing = static_cast<char>(store::kNotReady);

// The store's end of one connection, whose answers the test gives.
class Peer {
 public:
  explicit Peer(const FrozenStore& store) : fd_(store.accept()) {
    const timeval limit{.tv_sec = kHangLimit.count(), .tv_usec = 0};
    CHECK(::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    constexpr size_t kHello = 1 + sizeof(uint32_t);
    static_cast<void>(receive(kHello));
  }
  ~Peer() { ::close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// The next one, of any kind about one key.
  std::string next_request() const { return receive(kWaitRequest.size()); }
  void expect(const std::string& request) const { CHECK(receive(request.size()) == request); }
  void answer(std::string_view bytes) const {
    CHECK(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  void answer(char byte) const { answer(std::string_view(&byte, 1)); }

 private:
  std::string receive(size_t count) const {
    std::string bytes(count, '\0');
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, ::recv(fd_, bytes.data(), count, MSG_WAITALL))));
    return bytes;
  }

  int fd_;
};

struct Waiting {
  FrozenStore store{};
  StoreConnection connection{"127.0.0.1", store.port(), kHangLimit};
  Peer peer{store};
  Wait outcome = Wait::kTimeout;
  std::thread thread;

  // The thread waits for kAwaited when this returns.
  explicit Waiting(std::chrono::milliseconds limit = 1h)
      : thread([this, limit] { outcome = connection.wait({kAwaited}, limit); }) {
    peer.expect(kWaitRequest);
  }
  ~Waiting() {
    connection.interrupt();
    join();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  Wait join() {
    if (thread.joinable()) thread.join();
    return outcome;
  }
};

TEST_CASE("StoreConnection: a wait is taken back for another thread's call, and asked for again") {
  Waiting waiting;
  for (const bool is_there : {true, false, true}) {
    std::thread calling([&] { RANK_CHECK(waiting.connection.check({kOther}, kHangLimit) == is_there); });
    waiting.peer.expect(kCancelRequest);
    waiting.peer.answer(kWaitWasCancelled);
    waiting.peer.expect(kCheckRequest);
    waiting.peer.answer(is_there ? kIsThere : kIsMissing);
    calling.join();
    waiting.peer.expect(kWaitRequest);
  }
  waiting.peer.answer(kWaitHasEnded);
  CHECK(waiting.join() == Wait::kReady);
  test::report_rank_checks();
}

TEST_CASE("StoreConnection: a key that comes while the wait is taken back ends the wait") {
  Waiting waiting;
  std::thread calling([&] { RANK_CHECK(waiting.connection.check({kOther}, kHangLimit)); });
  waiting.peer.expect(kCancelRequest);
  waiting.peer.answer(kWaitHasEnded);
  waiting.peer.answer(kWaitWasCancelled);
  waiting.peer.expect(kCheckRequest);
  waiting.peer.answer(kIsThere);
  calling.join();
  CHECK(waiting.join() == Wait::kReady);
  test::report_rank_checks();
}

TEST_CASE("StoreConnection: a store that is slow to take a wait back breaks nothing") {
  Waiting waiting;
  std::thread calling([&] { RANK_CHECK(waiting.connection.check({kOther}, kHangLimit)); });
  waiting.peer.expect(kCancelRequest);
  std::this_thread::sleep_for(StoreConnection::kGrace + 200ms);  // no longer than that is it waited for after a limit
  waiting.peer.answer(kWaitWasCancelled);
  waiting.peer.expect(kCheckRequest);
  waiting.peer.answer(kIsThere);
  calling.join();
  waiting.peer.expect(kWaitRequest);
  waiting.peer.answer(kWaitHasEnded);
  CHECK(waiting.join() == Wait::kReady);
  test::report_rank_checks();
}

TEST_CASE("StoreConnection: threads that wait at once look in turn, and the last one waits in the store again") {
  Waiting first;
  Wait second = Wait::kTimeout;
  std::jthread other([&] { second = first.connection.wait({kOther}, kHangLimit); });
  first.peer.expect(kCancelRequest);
  first.peer.answer(kWaitWasCancelled);
  int looks_of_first = 0;
  int looks_of_second = 0;
  while (looks_of_first < 3 || looks_of_second < 3) {
    const std::string request = first.peer.next_request();
    REQUIRE((request == kLookRequest || request == kCheckRequest));
    ++(request == kLookRequest ? looks_of_first : looks_of_second);
    first.peer.answer(kIsMissing);
  }
  while (first.peer.next_request() != kCheckRequest) first.peer.answer(kIsMissing);
  first.peer.answer(kIsThere);
  other.join();
  CHECK(second == Wait::kReady);
  // It may look once more before it sees that it is alone.
  std::string request = first.peer.next_request();
  for (; request == kLookRequest; request = first.peer.next_request()) first.peer.answer(kIsMissing);
  CHECK(request == kWaitRequest);
  first.peer.answer(kWaitHasEnded);
  CHECK(first.join() == Wait::kReady);
}

TEST_CASE("StoreConnection: an interrupt ends the waits of all threads") {
  FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  const Peer peer(store);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { RANK_CHECK(connection.wait({kAwaited}, 1h) == Wait::kInterrupted); });
  }
  connection.interrupt();
  for (std::thread& thread : threads) thread.join();
  test::report_rank_checks();
}

TEST_CASE("StoreConnection: a wait whose limit passes during another call still asks once") {
  FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  const Peer peer(store);
  std::thread calling([&] { RANK_CHECK(connection.check({kOther}, kHangLimit)); });
  peer.expect(kCheckRequest);
  Wait outcome = Wait::kTimeout;
  std::thread waiting([&] { outcome = connection.wait({kAwaited}, 1ms); });
  std::this_thread::sleep_for(50ms);
  peer.answer(kIsThere);
  peer.expect(kLookRequest);
  peer.answer(kIsThere);
  waiting.join();
  calling.join();
  CHECK(outcome == Wait::kReady);
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::detail
