#include "launcher/nodes/store/key_value_store.h"

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/launcher/wire.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Equals;

// Collects what each connection was sent.
class Replies : public ReplySink {
 public:
  void send_u8(ConnectionId to, std::uint8_t value) override { sent_[to] += wire::integer(value); }
  void send_u32(ConnectionId to, std::uint32_t value) override { sent_[to] += wire::integer(value); }
  void send_i64(ConnectionId to, std::int64_t value) override { sent_[to] += wire::integer(value); }
  void send_bytes(ConnectionId to, const Value& value) override { sent_[to] += wire::text(*value); }
  void send_raw(ConnectionId to, const Value& bytes) override { sent_[to] += *bytes; }
  std::string take(ConnectionId from) { return std::exchange(sent_[from], ""); }

 private:
  std::map<ConnectionId, std::string> sent_;
};

const std::string kStop(1, '\0');
const std::string kCanceled(1, '\1');
const std::string kReady(1, '\0');
const std::string kNotReady(1, '\1');

class KeyValueStoreTest {
 protected:
  std::string ask(Opcode opcode, std::vector<std::string> keys = {}, std::vector<std::string> values = {},
                  std::int64_t number = 0, ConnectionId from = 1) {
    CHECK(store_.handle(from, {opcode, std::move(keys), std::move(values), number}, replies_) == "");
    return replies_.take(from);
  }
  std::string problem(Opcode opcode, std::vector<std::string> keys, std::int64_t number) {
    return store_.handle(1, {opcode, std::move(keys), {}, number}, replies_);
  }
  std::string get(const std::string& key) { return ask(Opcode::kGet, {key}).substr(8); }
  static std::string i64(std::int64_t value) { return wire::integer(value); }

  KeyValueStore store_;
  Replies replies_;
};

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: keys are set, read, deleted and counted") {
  CHECK(ask(Opcode::kSet, {"/k"}, {"v"}) == "");
  CHECK(ask(Opcode::kGet, {"/k"}) == wire::text("v"));
  CHECK(ask(Opcode::kGet, {"/none"}) == wire::text(""));
  CHECK(ask(Opcode::kNumKeys) == i64(1));
  CHECK(ask(Opcode::kDelete, {"/k"}) == i64(1));
  CHECK(ask(Opcode::kDelete, {"/k"}) == i64(0));
  CHECK(ask(Opcode::kNumKeys) == i64(0));
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: add keeps decimal text") {
  CHECK(ask(Opcode::kAdd, {"n"}, {}, 5) == i64(5));
  CHECK(ask(Opcode::kAdd, {"n"}, {}, -7) == i64(-2));
  CHECK(get("n") == "-2");
  ask(Opcode::kSet, {"n"}, {"40"});
  CHECK(ask(Opcode::kAdd, {"n"}, {}, 2) == i64(42));
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: add refuses what is no number and overflow") {
  for (const char* text : {"x", "", "1x", " 1", "99999999999999999999"}) {
    CAPTURE(text);
    ask(Opcode::kSet, {"n"}, {text});
    CHECK(problem(Opcode::kAdd, {"n"}, 1) != "");
    CHECK(get("n") == text);
  }
  ask(Opcode::kSet, {"n"}, {std::to_string(std::numeric_limits<std::int64_t>::max())});
  CHECK(problem(Opcode::kAdd, {"n"}, 1) != "");
  CHECK(problem(Opcode::kBarrier, {"n"}, 1) != "");
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: compare-set stores where the value is the expected one") {
  CHECK(ask(Opcode::kCompareSet, {"k"}, {"old", "new"}) == wire::text("old"));  // as torch: nothing is stored
  CHECK(ask(Opcode::kCheck, {"k"}) == kNotReady);
  CHECK(ask(Opcode::kCompareSet, {"k"}, {"", "first"}) == wire::text("first"));
  CHECK(ask(Opcode::kCompareSet, {"k"}, {"wrong", "second"}) == wire::text("first"));
  CHECK(ask(Opcode::kCompareSet, {"k"}, {"first", "second"}) == wire::text("second"));
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: values are appended to, and several are set and read at once") {
  ask(Opcode::kAppend, {"k"}, {"ab"});
  ask(Opcode::kAppend, {"k"}, {"c"});
  CHECK(get("k") == "abc");
  ask(Opcode::kMultiSet, {"x", "y"}, {"1", "2"});
  CHECK(ask(Opcode::kMultiGet, {"y", "none", "x"}) == wire::text("2") + wire::text("") + wire::text("1"));
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: an append does not change a reply on its way") {
  ask(Opcode::kSet, {"k"}, {"before"});
  const Value on_its_way = store_.find("k");
  ask(Opcode::kAppend, {"k"}, {"+after"});
  CHECK(*on_its_way == "before");
  CHECK(get("k") == "before+after");
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: append keeps to the limit of a value") {
  ask(Opcode::kAppend, {"k"}, {std::string(kMaxValueBytes - 2, 'x')});
  ask(Opcode::kAppend, {"k"}, {"ab"});
  CHECK(store_.handle(1, {Opcode::kAppend, {"k"}, {"c"}, 0}, replies_) != "");
  CHECK(store_.find("k")->size() == kMaxValueBytes);
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: the list of keys names every key") {
  ask(Opcode::kMultiSet, {"x", "y"}, {"1", "2"});
  const std::string list = ask(Opcode::kListKeys);
  CHECK_THAT(list,
             Equals(i64(2) + wire::text("x") + wire::text("y")) || Equals(i64(2) + wire::text("y") + wire::text("x")));
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: wait is answered when the last key arrives") {
  ask(Opcode::kSet, {"a"}, {"1"});
  CHECK(ask(Opcode::kWait, {"a"}) == kStop);
  CHECK(ask(Opcode::kWait, {}) == kStop);
  CHECK(ask(Opcode::kWait, {"a", "b", "c", "b"}) == "");
  ask(Opcode::kSet, {"b"}, {""}, 0, 2);
  CHECK(replies_.take(1) == "");
  ask(Opcode::kAdd, {"c"}, {}, 1, 2);
  CHECK(replies_.take(1) == kStop);
  ask(Opcode::kSet, {"c"}, {"again"}, 0, 2);
  CHECK(replies_.take(1) == "");
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: every kind of writing wakes who waits") {
  int round = 0;
  for (const Opcode opcode : {Opcode::kSet, Opcode::kAppend, Opcode::kMultiSet, Opcode::kQueuePush, Opcode::kAdd}) {
    const std::string key = "key" + std::to_string(round++);
    CAPTURE(key);
    CHECK(ask(Opcode::kWait, {key}) == "");
    ask(opcode, {key}, {"v"}, 1, 2);
    CHECK(replies_.take(1) == kStop);
  }
  CHECK(ask(Opcode::kWait, {"last"}) == "");
  ask(Opcode::kCompareSet, {"last"}, {"", "v"}, 0, 2);
  CHECK(replies_.take(1) == kStop);
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: a cancelled wait is not woken any more") {
  CHECK(ask(Opcode::kWait, {"a", "b"}) == "");
  CHECK(ask(Opcode::kCancelWait) == kCanceled);
  ask(Opcode::kMultiSet, {"a", "b"}, {"", ""}, 0, 2);
  CHECK(replies_.take(1) == "");
  CHECK(ask(Opcode::kCancelWait) == kCanceled);
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: a connection that is gone is not woken") {
  CHECK(ask(Opcode::kWait, {"a"}) == "");
  CHECK(ask(Opcode::kWait, {"a"}, {}, 0, 2) == "");
  store_.forget(1);
  ask(Opcode::kSet, {"a"}, {""}, 0, 3);
  CHECK(replies_.take(1) == "");
  CHECK(replies_.take(2) == kStop);
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: queues are first in, first out") {
  CHECK(ask(Opcode::kQueuePop, {"q"}) == i64(0));
  CHECK(ask(Opcode::kQueueLen, {"q"}) == i64(0));
  ask(Opcode::kQueuePush, {"q"}, {"1"});
  ask(Opcode::kQueuePush, {"q"}, {"2"});
  CHECK(ask(Opcode::kQueueLen, {"q"}) == i64(2));
  CHECK(ask(Opcode::kCheck, {"q"}) == kReady);
  CHECK(ask(Opcode::kQueuePop, {"q"}) == i64(2) + wire::text("1"));
  CHECK(ask(Opcode::kQueuePop, {"q"}) == i64(1) + wire::text("2"));
  CHECK(ask(Opcode::kQueuePop, {"q"}) == i64(0));
  CHECK(ask(Opcode::kCheck, {"q"}) == kNotReady);
  CHECK(ask(Opcode::kNumKeys) == i64(0));
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: one element wakes one waiter in order of arrival") {
  CHECK(ask(Opcode::kWait, {"q"}, {}, 0, 1) == "");
  CHECK(ask(Opcode::kWait, {"q"}, {}, 0, 2) == "");
  ask(Opcode::kQueuePush, {"q"}, {"x"}, 0, 3);
  CHECK(replies_.take(1) == kStop);
  CHECK(replies_.take(2) == "");
  ask(Opcode::kQueuePop, {"q"}, {}, 0, 1);
  ask(Opcode::kQueuePush, {"q"}, {"y"}, 0, 3);
  CHECK(replies_.take(2) == kStop);
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: a barrier opens for all with the last") {
  CHECK(ask(Opcode::kBarrier, {"b"}, {}, 3, 1) == "");
  CHECK(ask(Opcode::kBarrier, {"b"}, {}, 3, 2) == "");
  CHECK(replies_.take(1) == "");
  CHECK(ask(Opcode::kBarrier, {"b"}, {}, 3, 3) == kStop);
  CHECK(replies_.take(1) == kStop);
  CHECK(replies_.take(2) == kStop);
}

// Keeps what it is sent, as a connection does whose other end does not read.
class UnreadReplies : public Replies {
 public:
  void send_bytes(ConnectionId, const Value& value) override { values.push_back(value); }
  void send_raw(ConnectionId, const Value& bytes) override { values.push_back(bytes); }
  std::vector<Value> values;
};

class MemoryBudgetTest {
 protected:
  std::string ask(Opcode opcode, std::vector<std::string> keys = {}, std::vector<std::string> values = {}) {
    return store_.handle(1, {opcode, std::move(keys), std::move(values), 0}, replies_);
  }

  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(100'000);
  KeyValueStore store_{budget_};
  UnreadReplies replies_;
};

TEST_CASE_METHOD(MemoryBudgetTest, "MemoryBudget: what has no room is refused, and the rest goes on") {
  const std::string large(40'000, 'x');
  CHECK(ask(Opcode::kSet, {"a"}, {large}) == "");
  CHECK(ask(Opcode::kQueuePush, {"q"}, {large}) == "");
  CHECK_THAT(ask(Opcode::kSet, {"b"}, {large}), ContainsSubstring("the store is full"));
  CHECK_THAT(ask(Opcode::kAppend, {"a"}, {large}), ContainsSubstring("the store is full"));
  CHECK(ask(Opcode::kGet, {"a"}) == "");
  CHECK(ask(Opcode::kSet, {"small"}, {"value"}) == "");
  CHECK(ask(Opcode::kDelete, {"a"}) == "");
  replies_.values.clear();
  CHECK(ask(Opcode::kSet, {"b"}, {large}) == "");
}

TEST_CASE_METHOD(MemoryBudgetTest, "MemoryBudget: a value counts until nobody reads it any more") {
  ask(Opcode::kSet, {"a"}, {std::string(40'000, 'x')});
  ask(Opcode::kGet, {"a"});
  ask(Opcode::kSet, {"a"}, {std::string(40'000, 'y')});
  CHECK(budget_->used() > 80'000U);
  replies_.values.clear();
  CHECK(budget_->used() < 50'000U);
}

TEST_CASE_METHOD(MemoryBudgetTest, "MemoryBudget: everything is given back") {
  for (int i = 0; i < 50; ++i) ask(Opcode::kSet, {"key" + std::to_string(i)}, {"value"});
  for (int i = 0; i < 50; ++i) ask(Opcode::kAppend, {"key" + std::to_string(i)}, {std::string(300, 'x')});
  ask(Opcode::kQueuePush, {"q"}, {"value"});
  ask(Opcode::kWait, {"never", "key1", "nor this"});
  ask(Opcode::kListKeys);
  CHECK(budget_->used() > 50 * 305U);
  for (int i = 0; i < 50; ++i) ask(Opcode::kDelete, {"key" + std::to_string(i)});
  ask(Opcode::kQueuePop, {"q"});
  store_.forget(1);
  replies_.values.clear();
  CHECK(budget_->used() == 0U);
}

TEST_CASE_METHOD(MemoryBudgetTest, "MemoryBudget: those who list the same keys share one list") {
  for (int i = 0; i < 100; ++i) ask(Opcode::kSet, {std::string(200, 'k') + std::to_string(i)}, {""});
  const std::size_t before = budget_->used();
  for (int i = 0; i < 50; ++i) CHECK(ask(Opcode::kListKeys) == "");
  CHECK(budget_->used() - before < 30'000U);
  ask(Opcode::kSet, {"another"}, {""});
  ask(Opcode::kListKeys);
  CHECK(*replies_.values.back() != *replies_.values.front());
}

TEST_CASE_METHOD(KeyValueStoreTest, "KeyValueStore: a ping is echoed") {
  CHECK(ask(Opcode::kPing, {}, {}, 0xdeadbeef) == wire::integer(0xdeadbeefU));
}

}  // namespace
}  // namespace launcher::store
