// torch's client of the store, whose waits make room for other threads' calls.
#include "comm/group/torch_store.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/backends/gloo.h"
#include "comm/group/bounded_store.h"
#include "tests/comm/store_server.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;

class TorchStores {
 protected:
  static constexpr std::chrono::milliseconds kForHangs = 20s;
  static constexpr std::chrono::milliseconds kSoon = 100ms;  // for what must not come

  // As a rank has them.
  c10::intrusive_ptr<TorchStore> connect() const {
    c10d::TCPStoreOptions options;
    options.port = server_->getPort();
    options.timeout = kForHangs;
    options.waitWorkers = false;
    return c10::make_intrusive<TorchStore>(
        c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options),
        c10::make_intrusive<BoundedStore>("127.0.0.1", server_->getPort(), kForHangs));
  }

  c10::intrusive_ptr<c10d::TCPStore> server_ = test::make_store_server(kForHangs);
  c10::intrusive_ptr<TorchStore> store_ = connect();
};

TEST_CASE_METHOD(TorchStores, "TorchStore: is the store that torch's client is") {
  store_->set("key", to_bytes("value"));
  CHECK(get_text(*server_, "key") == "value");
  CHECK(get_text(*store_, "key") == "value");
  CHECK(store_->add("number", 3) == 3);
  CHECK(server_->add("number", 4) == 7);
  CHECK(store_->compareSet("key", to_bytes("value"), to_bytes("new")) == to_bytes("new"));
  CHECK(store_->check({"key", "number"}));
  CHECK_FALSE(store_->check({"never"}));
  CHECK(store_->getNumKeys() == server_->getNumKeys());
  CHECK(store_->hasExtendedApi());
  store_->append("key", to_bytes("er"));
  store_->multiSet({"a", "b"}, {to_bytes("1"), to_bytes("2")});
  CHECK(store_->multiGet({"b", "key", "a"}) == std::vector{to_bytes("2"), to_bytes("newer"), to_bytes("1")});
  CHECK(store_->deleteKey("key"));
  CHECK_FALSE(server_->check({"key"}));
  const auto clone = store_->clone();
  clone->set("key", to_bytes("cloned"));
  CHECK(get_text(*store_, "key") == "cloned");
}

TEST_CASE_METHOD(TorchStores, "TorchStore: waits end with torch's errors when the key does not come") {
  CHECK_THROWS_AS(store_->wait({"never"}, kSoon), c10::DistStoreError);
  store_->setTimeout(kSoon);
  CHECK(store_->getTimeout() == kSoon);
  CHECK_THROWS_AS(store_->wait({"never"}), c10::DistStoreError);
  CHECK_THROWS_AS(store_->get("never"), c10::DistStoreError);
  CHECK_THROWS_AS(store_->multiGet({"never"}), c10::DistStoreError);
  server_->set("key", to_bytes("1"));
  store_->wait({"key"}, kForHangs);
  CHECK(get_text(*store_, "key") == "1");
}

TEST_CASE_METHOD(TorchStores, "TorchStore: threads of two processes that wait for each other's keys all get them") {
  constexpr int kRounds = 100;
  const std::vector<c10::intrusive_ptr<TorchStore>> stores{connect(), connect()};
  const auto meet = [&](size_t own, int thread) {
    const auto key = [&](size_t of, int round) {
      return std::to_string(of) + "/" + std::to_string(thread) + "/" + std::to_string(round);
    };
    for (int round = 0; round < kRounds; ++round) {
      stores[own]->set(key(own, round), to_bytes(key(own, round)));
      const std::string awaited = key(1 - own, round);
      RANK_REQUIRE(get_text(*stores[own], awaited) == awaited);
    }
  };
  std::vector<std::thread> threads;
  for (const int thread : {0, 1}) {
    for (const size_t own : {size_t{0}, size_t{1}}) threads.emplace_back(meet, own, thread);
  }
  for (std::thread& thread : threads) thread.join();
  test::report_rank_checks();
}

TEST_CASE_METHOD(TorchStores, "TorchStore: two threads of two ranks connect groups over it at once") {
  constexpr int kRounds = 20;
  const std::vector<c10::intrusive_ptr<TorchStore>> stores{connect(), connect()};
  // Until all are connected: a rank whose peer closes its group meanwhile fails.
  std::vector<std::vector<c10::intrusive_ptr<c10d::Backend>>> groups(4);
  const auto connect_groups = [&](int rank, int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = std::to_string(thread) + "/" + std::to_string(round);
      const GroupPlan plan{
          .info = {.rank = rank, .world_size = 2}, .timeout = kForHangs, .name = name, .in_process = true};
      const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, stores[static_cast<size_t>(rank)]);
      groups[static_cast<size_t>(2 * thread + rank)].push_back(make_gloo(plan, prefixed));
    }
  };
  std::vector<std::thread> threads;
  for (const int thread : {0, 1}) {
    for (const int rank : {0, 1}) threads.emplace_back(connect_groups, rank, thread);
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& connected : groups) CHECK(connected.size() == kRounds);
}

}  // namespace
}  // namespace ddp::detail
