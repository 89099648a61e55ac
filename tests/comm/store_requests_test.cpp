// A client of the store speaks TCPStore's protocol, and takes nothing else for an answer.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/core/store_connection.h"
#include "tests/comm/frozen_store.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

std::string u32(uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}
std::string u64(uint64_t value) {
  return u32(static_cast<uint32_t>(value)) + u32(static_cast<uint32_t>(value >> 32));
}
std::string text(const std::string& value) {
  return u64(value.size()) + value;
}
std::string byte(char value) {
  return std::string(1, value);
}

/// Bytes that a store gets, and those that it sends then.
struct Exchange {
  std::string request;
  std::string answer;
};

// A store that expects these requests after its client's hello and answers them, byte by byte if asked to, and closes.
class ScriptedStore {
 public:
  explicit ScriptedStore(std::vector<Exchange> script, bool in_drops = false)
      : thread_([this, script = std::move(script), in_drops] {
          const int peer = store_.accept();
          RANK_CHECK(received(peer, 5) == byte(0) + u32(0x3C85F7CE));
          for (const auto& [request, answer] : script) {
            RANK_CHECK(received(peer, request.size()) == request);
            const size_t step = in_drops ? 1 : std::max<size_t>(answer.size(), 1);
            for (size_t i = 0; i < answer.size(); i += step) {
              RANK_CHECK(::send(peer, answer.data() + i, step, MSG_NOSIGNAL) == static_cast<ssize_t>(step));
            }
          }
          ::shutdown(peer, SHUT_WR);
          RANK_CHECK(received(peer, 1) == "");
          ::close(peer);
        }) {}
  ~ScriptedStore() {
    thread_.join();
    test::report_rank_checks();
  }
  ScriptedStore(const ScriptedStore&) = delete;
  ScriptedStore& operator=(const ScriptedStore&) = delete;

  uint16_t port() const { return store_.port(); }

 private:
  static std::string received(int peer, size_t size) {
    std::string bytes(size, '\0');
    const ssize_t count = ::recv(peer, bytes.data(), size, MSG_WAITALL);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
  }

  FrozenStore store_{};
  std::thread thread_;
};

// What a call makes of the store's answers; the connection ends before the store does.
template <typename Call>
auto with_store(std::vector<Exchange> script, const Call& call, bool in_drops = false) {
  const ScriptedStore store(std::move(script), in_drops);
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  return call(connection);
}

const std::string kEveryByte = [] {
  std::string bytes;
  for (int value = 0; value < 256; ++value) bytes.push_back(static_cast<char>(value));
  return bytes;
}();

// The bytes are those of torch's TCPStore, torch/csrc/distributed/c10d/TCPStoreBackend.
TEST_CASE("StoreConnection: requests and answers are TCPStore's, however the answers are cut") {
  const bool in_drops = GENERATE(false, true);
  const auto made_of = [&](const std::string& request, const std::string& answer, const auto& call) {
    return with_store({{request, answer}}, call, in_drops);
  };
  CHECK(made_of(byte(3) + text("/key"), text(kEveryByte), [](auto& store) { return store.get("/key", kHangLimit); }) ==
        kEveryByte);
  CHECK(made_of(byte(3) + text(""), text(""), [](auto& store) { return store.get("", kHangLimit); }) == "");
  const std::string with_nul("\0a", 2);
  CHECK(made_of(byte(2) + text("k") + text(with_nul) + text(""), text("now"),
                [&](auto& store) { return store.compare_set("k", with_nul, "", kHangLimit); }) == "now");
  CHECK(made_of(byte(4) + text("n") + u64(static_cast<uint64_t>(-3)), u64(static_cast<uint64_t>(-7)),
                [](auto& store) { return store.add("n", -3, kHangLimit); }) == -7);
  CHECK(made_of(byte(4) + text("n") + u64(uint64_t{1} << 40), u64((uint64_t{1} << 40) + 5),
                [](auto& store) { return store.add("n", int64_t{1} << 40, kHangLimit); }) == (int64_t{1} << 40) + 5);
  CHECK(made_of(byte(5) + u64(2) + text("a") + text("b"), byte(0), [](auto& store) {
    return store.check({"a", "b"}, kHangLimit);
  }));
  CHECK_FALSE(
      made_of(byte(5) + u64(1) + text("a"), byte(1), [](auto& store) { return store.check({"a"}, kHangLimit); }));
  CHECK(made_of(byte(5) + u64(0), byte(0), [](auto& store) { return store.check({}, kHangLimit); }));
  CHECK(made_of(byte(7), u64(12), [](auto& store) { return store.number_of_keys(kHangLimit); }) == 12);
  CHECK(made_of(byte(8) + text("a"), u64(1), [](auto& store) { return store.delete_key("a", kHangLimit); }) == 1);
  CHECK(made_of(byte(6) + u64(2) + text("a") + text(kEveryByte), byte(0), [](auto& store) {
          return store.wait({"a", kEveryByte}, kHangLimit);
        }) == StoreConnection::Wait::kReady);
}

TEST_CASE("StoreConnection: a value has no answer, and may be any bytes of any length") {
  for (const std::string& value : {std::string(), kEveryByte, std::string(1 << 20, '\xff')}) {
    // The answer of the call behind it shows that both have come, in order.
    CHECK(with_store({{byte(1) + text("/key") + text(value), ""}, {byte(7), u64(1)}}, [&](auto& store) {
            store.set("/key", value, kHangLimit);
            return store.number_of_keys(kHangLimit);
          }) == 1);
  }
}

TEST_CASE("StoreConnection: a wait that takes too long is taken back, and the connection stays of use") {
  const auto [outcome, keys] =
      with_store({{byte(6) + u64(1) + text("a"), ""}, {byte(12), byte(1)}, {byte(7), u64(4)}}, [](auto& store) {
        const auto waited = store.wait({"a"}, kLimit);
        return std::pair(waited, store.number_of_keys(kHangLimit));
      });
  CHECK(outcome == StoreConnection::Wait::kTimeout);
  CHECK(keys == 4);
}

// A store that sends the key's arrival just as the wait is taken back has said both, in this order.
TEST_CASE("StoreConnection: a wait that is answered while it is taken back was answered") {
  const auto [outcome, keys] = with_store(
      {{byte(6) + u64(1) + text("a"), ""}, {byte(12), byte(0) + byte(1)}, {byte(7), u64(9)}}, [](auto& store) {
        const auto waited = store.wait({"a"}, kLimit);
        return std::pair(waited, store.number_of_keys(kHangLimit));
      });
  CHECK(outcome == StoreConnection::Wait::kReady);
  CHECK(keys == 9);
}

TEST_CASE("StoreConnection: a store that closes in the middle of an answer is noticed wherever it does") {
  const std::string answer = text("some value");
  for (size_t size = 0; size < answer.size(); ++size) {
    INFO("after " << size << " bytes");
    const ScriptedStore store({{byte(3) + text("key"), answer.substr(0, size)}});
    StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
    CHECK_THROWS_MATCHES(connection.get("key", std::chrono::hours(1)), StoreUnreachable,
                         Catch::Matchers::MessageMatches(
                             Catch::Matchers::ContainsSubstring("127.0.0.1:" + std::to_string(store.port())) &&
                             Catch::Matchers::ContainsSubstring("closed the connection")));
    UNSCOPED_INFO("and remembered");
    CHECK_THROWS_AS(connection.get("key", std::chrono::hours(1)), StoreUnreachable);
  }
}

TEST_CASE("StoreConnection: what answers like no store is not a store") {
  UNSCOPED_INFO("a web server");
  CHECK_THROWS_AS(with_store({{byte(3) + text("key"), "HTTP/1.1 400 Bad Request\r\n\r\n"}},
                             [](auto& store) { return store.get("key", kHangLimit); }),
                  StoreUnreachable);
  for (const uint64_t length : {(uint64_t{1} << 30) + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    CHECK_THROWS_AS(with_store({{byte(3) + text("key"), u64(length) + "x"}},
                               [](auto& store) { return store.get("key", kHangLimit); }),
                    StoreUnreachable);
  }
}

TEST_CASE("StoreConnection: a byte that is not an answer to the question is not a store's") {
  for (const char other : {'\x02', 'H', '\xff'}) {
    INFO("byte " << static_cast<int>(other));
    CHECK_THROWS_MATCHES(with_store({{byte(5) + u64(1) + text("a"), byte(other)}},
                                    [](auto& store) { return store.check({"a"}, kHangLimit); }),
                         StoreUnreachable,
                         Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring("it is not a store")));
    CHECK_THROWS_AS(with_store({{byte(6) + u64(1) + text("a"), byte(other)}},
                               [](auto& store) { return store.wait({"a"}, kHangLimit); }),
                    StoreUnreachable);
    UNSCOPED_INFO("when the wait is taken back");
    CHECK_THROWS_AS(with_store({{byte(6) + u64(1) + text("a"), ""}, {byte(12), byte(other)}},
                               [](auto& store) { return store.wait({"a"}, kLimit); }),
                    StoreUnreachable);
    CHECK_THROWS_AS(with_store({{byte(6) + u64(1) + text("a"), ""}, {byte(12), byte(0) + byte(other)}},
                               [](auto& store) { return store.wait({"a"}, kLimit); }),
                    StoreUnreachable);
  }
}

// While it lives, this process may have no more than `more` bytes of address space above what it has.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(rlim_t more) {
    REQUIRE(::getrlimit(RLIMIT_AS, &before_) == 0);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  }
  ~AddressSpaceLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_CASE("StoreConnection: memory is taken for what has come, not for what is announced") {
  const std::string announced = u64(uint64_t{1} << 30);
  for (const size_t sent : {size_t{0}, size_t{1}, size_t{200'000}}) {
    INFO("of a text of 1 GiB " << sent << " bytes");
    const ScriptedStore store({{byte(3) + text("key"), announced + std::string(sent, 'x')}});
    StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
    const AddressSpaceLimit limit(rlim_t{700} << 20);
    CHECK_THROWS_MATCHES(connection.get("key", kHangLimit), StoreUnreachable,
                         Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring("closed the connection")));
  }
}

TEST_CASE("StoreConnection: texts around the sizes in which they are received arrive whole") {
  for (const size_t size : {65'535U, 65'536U, 65'537U, 131'072U, 131'073U, 1'000'003U}) {
    std::string value(size, '\0');
    for (size_t i = 0; i < size; ++i) value[i] = static_cast<char>(i * 31 + i / 251);
    CHECK(with_store({{byte(3) + text("key"), text(value)}},
                     [](auto& store) { return store.get("key", kHangLimit); }) == value);
  }
}

TEST_CASE("StoreConnection: calls of several threads do not mix") {
  constexpr int kThreads = 4;
  constexpr int kCalls = 50;
  const FrozenStore store;
  StoreConnection connection("127.0.0.1", store.port(), kHangLimit);
  // Answers each ADD with ten times what it was given.
  std::thread answering([&] {
    const int peer = store.accept();
    char hello[5];
    RANK_CHECK(::recv(peer, hello, sizeof hello, MSG_WAITALL) == static_cast<ssize_t>(sizeof hello));
    for (int i = 0; i < kThreads * kCalls; ++i) {
      std::string request(1 + text("n").size() + 8, '\0');
      RANK_REQUIRE(::recv(peer, request.data(), request.size(), MSG_WAITALL) == static_cast<ssize_t>(request.size()));
      RANK_REQUIRE(request.starts_with(byte(4) + text("n")));
      uint64_t value = 0;
      for (size_t k = 0; k < 8; ++k) {
        value |= static_cast<uint64_t>(static_cast<unsigned char>(request[request.size() - 8 + k])) << (8 * k);
      }
      const std::string answer = u64(10 * value);
      RANK_REQUIRE(::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL) == 8);
    }
    ::close(peer);
  });
  std::vector<std::thread> asking;
  for (int thread = 0; thread < kThreads; ++thread) {
    asking.emplace_back([&, thread] {
      for (int i = 0; i < kCalls; ++i) {
        const int64_t value = thread * 1000 + i;
        RANK_REQUIRE(connection.add("n", value, kHangLimit) == 10 * value);
      }
    });
  }
  for (std::thread& thread : asking) thread.join();
  answering.join();
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::detail
