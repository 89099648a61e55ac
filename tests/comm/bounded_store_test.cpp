// The store for our own keys, beside torch's own client of one TCPStore.
#include "comm/group/bounded_store.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/store_protocol.h"
#include "tests/comm/frozen_store.h"
#include "tests/comm/store_server.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Clock = std::chrono::steady_clock;
using test::error_of;

constexpr auto kForHangs = 20s;
constexpr auto kSoon = 100ms;  // for what must not come
constexpr auto kShort = 2s;    // a short limit, within which a busy machine still answers

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// torch's clients do not wait for the end of a set(), so that another connection's call may come before it.
void set_now(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, bytes(value));
  static_cast<void>(store.getNumKeys());
}

class BoundedStores {
 protected:
  c10::intrusive_ptr<BoundedStore> connect(std::chrono::milliseconds limit = kForHangs) const {
    return c10::make_intrusive<BoundedStore>("127.0.0.1", torch_->getPort(), limit);
  }

  c10::intrusive_ptr<c10d::TCPStore> torch_ = test::make_store_server(kForHangs);
  c10::intrusive_ptr<BoundedStore> ours_ = connect();
};

TEST_CASE_METHOD(BoundedStores, "BoundedStore: keys and values are those that torch's client of the same store has") {
  std::string every_byte;
  for (int value = 0; value < 256; ++value) every_byte.push_back(static_cast<char>(value));
  for (const std::string& key : {std::string("key"), std::string("a/b//c"), std::string(), every_byte}) {
    for (const std::string& value : {std::string(), std::string("value"), every_byte, std::string(300'000, '\xff')}) {
      set_now(*ours_, key, value);
      CHECK(text(torch_->get(key)) == value);
      set_now(*torch_, key, value + "!");
      CHECK(text(ours_->get(key)) == value + "!");
    }
    CHECK(ours_->check({key}));
    CHECK(ours_->getNumKeys() == torch_->getNumKeys());
    CHECK(ours_->deleteKey(key));
    CHECK_FALSE(ours_->deleteKey(key));
    CHECK_FALSE(torch_->check({key}));
    CHECK_FALSE(ours_->check({key}));
  }
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: both clients count on one number") {
  int64_t expected = 0;
  for (const int64_t step : {int64_t{1}, int64_t{-5}, int64_t{1} << 40, int64_t{0}, -(int64_t{1} << 41)}) {
    CHECK(ours_->add("number", step) == (expected += step));
    CHECK(torch_->add("number", step) == (expected += step));
  }
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: counts itself in as torch's clients do") {
  // Beside the keys of users, so that no client of torch's can ask.
  StoreConnection wire("127.0.0.1", torch_->getPort(), kForHangs);
  const int64_t before = wire.add("init/", 0, kForHangs);
  ours_->count_in();
  CHECK(wire.add("init/", 0, kForHangs) == before + 1);
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: compareSet does what torch's client does in each case") {
  for (const bool is_there : {false, true}) {
    for (const char* expected : {"", "old", "other"}) {
      INFO("there: " << is_there << ", expected: '" << expected << "'");
      const auto outcome = [&](c10d::Store& store, const std::string& key) {
        if (is_there) store.set(key, bytes("old"));
        const std::string answer = text(store.compareSet(key, bytes(expected), bytes("new")));
        return answer + " | " + (store.check({key}) ? text(store.get(key)) : "nothing");
      };
      const std::string tag = std::to_string(is_there) + expected;
      CHECK(outcome(*ours_, "ours" + tag) == outcome(*torch_, "torch" + tag));
    }
  }
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: of several keys all have to be there") {
  ours_->set("a", bytes("1"));
  CHECK_FALSE(ours_->check({"a", "b"}));
  CHECK_FALSE(ours_->check({"b", "a"}));
  set_now(*torch_, "b", "1");
  CHECK(ours_->check({"a", "b", "a"}));
  CHECK(ours_->check({}));
  ours_->wait({"a", "b", "b"});
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: a get or wait ends when another client sets the key") {
  std::thread setting([&] {
    const auto other = connect();
    // The waits below are under way, or begin later: either way the keys come.
    other->set("first", bytes("1"));
    other->set("second", bytes("2"));
  });
  ours_->wait({"second", "first"});
  CHECK(text(ours_->get("second")) == "2");
  setting.join();
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: no wait for a key that does not come is longer than its limit") {
  const auto begin = Clock::now();
  CHECK_THAT(error_of<c10::Error>([&] {
               ours_->wait({"never", "nor this"}, kSoon);
             }),
             ContainsSubstring("no value for never in the job's store after 100 ms"));
  CHECK(Clock::now() - begin >= kSoon);
  const auto hurried = connect(kShort);
  CHECK_THROWS_AS(hurried->get("never"), c10::Error);
  CHECK_THROWS_AS(hurried->wait({"never"}), c10::Error);
  UNSCOPED_INFO("a wait's own time may be longer than the limit");
  torch_->set("key", bytes("1"));
  hurried->wait({"key"}, kForHangs);
  UNSCOPED_INFO("and both connections stay of use");
  CHECK(text(hurried->get("key")) == "1");
  CHECK(text(ours_->get("key")) == "1");
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: a wait for no keys is over at once") {
  ours_->wait({});
  ours_->wait({}, 0ms);
  CHECK(ours_->getNumKeys() == torch_->getNumKeys());
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: a clone is a connection of its own with the same limit") {
  ours_->set_limit(kShort);
  const auto clone = ours_->clone();
  ours_->interrupt();
  CHECK_THROWS_AS(ours_->check({"key"}) || true, std::runtime_error);
  clone->set("key", bytes("1"));
  CHECK(text(clone->get("key")) == "1");
  CHECK_THROWS_AS(clone->get("never"), c10::Error);
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: an interrupt ends a wait of another thread") {
  std::thread waiting([&] {
    RANK_CHECK_THAT(error_of<std::exception>([&] { ours_->wait({"never"}, std::chrono::hours(1)); }),
                    ContainsSubstring("the wait for never was cancelled"));
  });
  ours_->interrupt();
  waiting.join();
  test::report_rank_checks();
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: a wait of one thread excludes no call of another one") {
  std::thread waiting([&] { RANK_CHECK(text(ours_->get("late")) == "1"); });
  for (int round = 0; round < 100; ++round) {
    const std::string key = "key" + std::to_string(round);
    ours_->set(key, bytes("1"));
    CHECK(text(ours_->get(key)) == "1");
    CHECK(ours_->check({key}));
    CHECK(ours_->add("number", 1) == round + 1);
    CHECK(text(ours_->compareSet(key, bytes("1"), bytes("2"))) == "2");
    CHECK(ours_->getNumKeys() == torch_->getNumKeys());
    CHECK(ours_->deleteKey(key));
  }
  ours_->set("late", bytes("1"));
  waiting.join();
  test::report_rank_checks();
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: threads of two processes that wait for each other's keys all get them") {
  constexpr int kRounds = 200;
  const int threads_each = GENERATE(2, 5);
  CAPTURE(threads_each);
  const std::vector<c10::intrusive_ptr<BoundedStore>> stores{connect(), connect()};
  const auto meet = [&](size_t own, int thread) {
    const auto key = [&](size_t of, int round) {
      return std::to_string(of) + "/" + std::to_string(thread) + "/" + std::to_string(round);
    };
    for (int round = 0; round < kRounds; ++round) {
      stores[own]->set(key(own, round), bytes(key(own, round)));
      const std::string awaited = key(1 - own, round);
      RANK_REQUIRE(text(stores[own]->get(awaited)) == awaited);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < threads_each; ++thread) {
    for (const size_t own : {size_t{0}, size_t{1}}) threads.emplace_back(meet, own, thread);
  }
  for (std::thread& thread : threads) thread.join();
  test::report_rank_checks();
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: waits keep to their limits while other threads wait and call") {
  std::atomic<bool> is_over{false};
  std::thread calling([&] {
    while (!is_over) static_cast<void>(ours_->check({"key"}));
  });
  std::thread waiting([&] { ours_->wait({"over"}, kForHangs); });
  const auto begin = Clock::now();
  for (int wait = 0; wait < 3; ++wait) CHECK_THROWS_AS(ours_->wait({"never"}, kSoon), c10::Error);
  CHECK(Clock::now() - begin >= 3 * kSoon);
  CHECK(Clock::now() - begin < kForHangs);
  is_over = true;
  ours_->set("over", bytes("1"));
  calling.join();
  waiting.join();
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: the budget of one thread does not limit another thread") {
  ours_->set("key", bytes("1"));
  const BoundedStore::Budget budget(ours_, 0ms);
  CHECK_THROWS_AS(ours_->check({"key"}), StoreOutOfTime);
  std::thread other([&] {
    RANK_CHECK(ours_->check({"key"}));
    RANK_CHECK(text(ours_->get("key")) == "1");
    const BoundedStore::Budget outer(ours_, kForHangs);
    {
      const BoundedStore::Budget inner(ours_, 0ms);
      RANK_CHECK_THROWS_AS(ours_->check({"key"}), StoreOutOfTime);
      const BoundedStore::Budget longer(ours_, kForHangs);
      RANK_CHECK_THROWS_AS(ours_->check({"key"}), StoreOutOfTime);
    }
    RANK_CHECK(ours_->check({"key"}));
  });
  other.join();
  CHECK_THROWS_AS(ours_->check({"key"}), StoreOutOfTime);
  test::report_rank_checks();
}

TEST_CASE_METHOD(BoundedStores, "BoundedStore: a budget bounds all calls together, waits of any length as well") {
  ours_->set("key", bytes("1"));
  {
    const BoundedStore::Budget budget(ours_, kForHangs);
    CHECK(text(ours_->get("key")) == "1");
  }
  {
    const BoundedStore::Budget budget(ours_, kSoon);
    const auto begin = Clock::now();
    CHECK_THROWS_AS(ours_->wait({"never"}, std::chrono::hours(1)), StoreOutOfTime);
    CHECK(Clock::now() - begin >= kSoon);
    CHECK(Clock::now() - begin < kForHangs);
    CHECK_THROWS_AS(ours_->check({"key"}), StoreOutOfTime);
    CHECK_THROWS_AS(ours_->set("key", bytes("2")), StoreOutOfTime);
    CHECK_THROWS_AS(ours_->wait({"key"}, kForHangs), StoreOutOfTime);
    CHECK_THROWS_AS(ours_->clone(), StoreOutOfTime);
  }
  CHECK(text(ours_->get("key")) == "1");
  UNSCOPED_INFO("a null store has no calls to bound");
  const BoundedStore::Budget nothing(nullptr, kSoon);
}

TEST_CASE("BoundedStore: a store that is late after a short wait is waited for, until calls are limited") {
  for (const bool is_limited : {false, true}) {
    const FrozenStore frozen;
    BoundedStore ours("127.0.0.1", frozen.port(), kForHangs);
    if (is_limited) ours.set_limit(kSoon);
    const int peer = frozen.accept();
    std::jthread late([&] {
      std::this_thread::sleep_for(StoreConnection::kGrace + 1s);
      const char cancelled = static_cast<char>(store::kWaitCanceled);
      static_cast<void>(::send(peer, &cancelled, 1, MSG_NOSIGNAL));
    });
    const std::string error = error_of<std::exception>([&] { ours.wait({"key"}, kSoon); });
    CHECK_THAT(error, ContainsSubstring(is_limited ? "it does not answer" : "no value for key"));
    late.join();
    ::close(peer);
  }
}

TEST_CASE("BoundedStore: a store that answers nothing is given up within the limit, waits for no keys included") {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(listener, 8) == 0);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  BoundedStore store("127.0.0.1", ntohs(address.sin_port), kForHangs);
  store.set_limit(kSoon);
  store.wait({});
  store.wait({}, kSoon);
  const auto begin = Clock::now();
  CHECK_THROWS_AS(store.get("key"), StoreUnreachable);
  CHECK(Clock::now() - begin < kForHangs);
  CHECK_THROWS_AS(store.add("key", 1), StoreUnreachable);
  ::close(listener);
}

}  // namespace
}  // namespace ddp::detail
