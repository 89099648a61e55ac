#include "launcher/store/key_value_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/launcher/wire.h"

namespace launcher::store {
namespace {

using testing::UnorderedElementsAre;

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

class KeyValueStoreTest : public testing::Test {
 protected:
  std::string ask(Opcode opcode, std::vector<std::string> keys = {}, std::vector<std::string> values = {},
                  std::int64_t number = 0, ConnectionId from = 1) {
    EXPECT_EQ(store_.handle(from, {opcode, std::move(keys), std::move(values), number}, replies_), "");
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

TEST_F(KeyValueStoreTest, SetGetDeleteCount) {
  EXPECT_EQ(ask(Opcode::kSet, {"/k"}, {"v"}), "");
  EXPECT_EQ(ask(Opcode::kGet, {"/k"}), wire::text("v"));
  EXPECT_EQ(ask(Opcode::kGet, {"/none"}), wire::text(""));
  EXPECT_EQ(ask(Opcode::kNumKeys), i64(1));
  EXPECT_EQ(ask(Opcode::kDelete, {"/k"}), i64(1));
  EXPECT_EQ(ask(Opcode::kDelete, {"/k"}), i64(0));
  EXPECT_EQ(ask(Opcode::kNumKeys), i64(0));
}

TEST_F(KeyValueStoreTest, AddKeepsDecimalText) {
  EXPECT_EQ(ask(Opcode::kAdd, {"n"}, {}, 5), i64(5));
  EXPECT_EQ(ask(Opcode::kAdd, {"n"}, {}, -7), i64(-2));
  EXPECT_EQ(get("n"), "-2");
  ask(Opcode::kSet, {"n"}, {"40"});
  EXPECT_EQ(ask(Opcode::kAdd, {"n"}, {}, 2), i64(42));
}

TEST_F(KeyValueStoreTest, AddRefusesWhatIsNoNumberAndOverflow) {
  for (const char* text : {"x", "", "1x", " 1", "99999999999999999999"}) {
    ask(Opcode::kSet, {"n"}, {text});
    EXPECT_NE(problem(Opcode::kAdd, {"n"}, 1), "") << text;
    EXPECT_EQ(get("n"), text);
  }
  ask(Opcode::kSet, {"n"}, {std::to_string(std::numeric_limits<std::int64_t>::max())});
  EXPECT_NE(problem(Opcode::kAdd, {"n"}, 1), "");
  EXPECT_NE(problem(Opcode::kBarrier, {"n"}, 1), "");
}

TEST_F(KeyValueStoreTest, CompareSet) {
  EXPECT_EQ(ask(Opcode::kCompareSet, {"k"}, {"old", "new"}), wire::text("old"));  // as torch: nothing is stored
  EXPECT_EQ(ask(Opcode::kCheck, {"k"}), kNotReady);
  EXPECT_EQ(ask(Opcode::kCompareSet, {"k"}, {"", "first"}), wire::text("first"));
  EXPECT_EQ(ask(Opcode::kCompareSet, {"k"}, {"wrong", "second"}), wire::text("first"));
  EXPECT_EQ(ask(Opcode::kCompareSet, {"k"}, {"first", "second"}), wire::text("second"));
}

TEST_F(KeyValueStoreTest, AppendAndMulti) {
  ask(Opcode::kAppend, {"k"}, {"ab"});
  ask(Opcode::kAppend, {"k"}, {"c"});
  EXPECT_EQ(get("k"), "abc");
  ask(Opcode::kMultiSet, {"x", "y"}, {"1", "2"});
  EXPECT_EQ(ask(Opcode::kMultiGet, {"y", "none", "x"}), wire::text("2") + wire::text("") + wire::text("1"));
}

TEST_F(KeyValueStoreTest, AnAppendDoesNotChangeAReplyOnItsWay) {
  ask(Opcode::kSet, {"k"}, {"before"});
  const Value on_its_way = store_.find("k");
  ask(Opcode::kAppend, {"k"}, {"+after"});
  EXPECT_EQ(*on_its_way, "before");
  EXPECT_EQ(get("k"), "before+after");
}

TEST_F(KeyValueStoreTest, AppendKeepsToTheLimitOfAValue) {
  ask(Opcode::kAppend, {"k"}, {std::string(kMaxValueBytes - 2, 'x')});
  ask(Opcode::kAppend, {"k"}, {"ab"});
  EXPECT_NE(store_.handle(1, {Opcode::kAppend, {"k"}, {"c"}, 0}, replies_), "");
  EXPECT_EQ(store_.find("k")->size(), kMaxValueBytes);
}

TEST_F(KeyValueStoreTest, ListKeysNamesEveryKey) {
  ask(Opcode::kMultiSet, {"x", "y"}, {"1", "2"});
  const std::string list = ask(Opcode::kListKeys);
  EXPECT_TRUE(list == i64(2) + wire::text("x") + wire::text("y") || list == i64(2) + wire::text("y") + wire::text("x"));
}

TEST_F(KeyValueStoreTest, WaitIsAnsweredWhenTheLastKeyArrives) {
  ask(Opcode::kSet, {"a"}, {"1"});
  EXPECT_EQ(ask(Opcode::kWait, {"a"}), kStop);
  EXPECT_EQ(ask(Opcode::kWait, {}), kStop);
  EXPECT_EQ(ask(Opcode::kWait, {"a", "b", "c", "b"}), "");
  ask(Opcode::kSet, {"b"}, {""}, 0, 2);
  EXPECT_EQ(replies_.take(1), "");
  ask(Opcode::kAdd, {"c"}, {}, 1, 2);
  EXPECT_EQ(replies_.take(1), kStop);
  ask(Opcode::kSet, {"c"}, {"again"}, 0, 2);
  EXPECT_EQ(replies_.take(1), "");
}

TEST_F(KeyValueStoreTest, EveryKindOfWritingWakes) {
  int round = 0;
  for (const Opcode opcode : {Opcode::kSet, Opcode::kAppend, Opcode::kMultiSet, Opcode::kQueuePush, Opcode::kAdd}) {
    const std::string key = "key" + std::to_string(round++);
    EXPECT_EQ(ask(Opcode::kWait, {key}), "");
    ask(opcode, {key}, {"v"}, 1, 2);
    EXPECT_EQ(replies_.take(1), kStop);
  }
  EXPECT_EQ(ask(Opcode::kWait, {"last"}), "");
  ask(Opcode::kCompareSet, {"last"}, {"", "v"}, 0, 2);
  EXPECT_EQ(replies_.take(1), kStop);
}

TEST_F(KeyValueStoreTest, ACancelledWaitIsNotWokenAnyMore) {
  EXPECT_EQ(ask(Opcode::kWait, {"a", "b"}), "");
  EXPECT_EQ(ask(Opcode::kCancelWait), kCanceled);
  ask(Opcode::kMultiSet, {"a", "b"}, {"", ""}, 0, 2);
  EXPECT_EQ(replies_.take(1), "");
  EXPECT_EQ(ask(Opcode::kCancelWait), kCanceled);
}

TEST_F(KeyValueStoreTest, AConnectionThatIsGoneIsNotWoken) {
  EXPECT_EQ(ask(Opcode::kWait, {"a"}), "");
  EXPECT_EQ(ask(Opcode::kWait, {"a"}, {}, 0, 2), "");
  store_.forget(1);
  ask(Opcode::kSet, {"a"}, {""}, 0, 3);
  EXPECT_EQ(replies_.take(1), "");
  EXPECT_EQ(replies_.take(2), kStop);
}

TEST_F(KeyValueStoreTest, QueuesAreFirstInFirstOut) {
  EXPECT_EQ(ask(Opcode::kQueuePop, {"q"}), i64(0));
  EXPECT_EQ(ask(Opcode::kQueueLen, {"q"}), i64(0));
  ask(Opcode::kQueuePush, {"q"}, {"1"});
  ask(Opcode::kQueuePush, {"q"}, {"2"});
  EXPECT_EQ(ask(Opcode::kQueueLen, {"q"}), i64(2));
  EXPECT_EQ(ask(Opcode::kCheck, {"q"}), kReady);
  EXPECT_EQ(ask(Opcode::kQueuePop, {"q"}), i64(2) + wire::text("1"));
  EXPECT_EQ(ask(Opcode::kQueuePop, {"q"}), i64(1) + wire::text("2"));
  EXPECT_EQ(ask(Opcode::kQueuePop, {"q"}), i64(0));
  EXPECT_EQ(ask(Opcode::kCheck, {"q"}), kNotReady);
  EXPECT_EQ(ask(Opcode::kNumKeys), i64(0));
}

TEST_F(KeyValueStoreTest, OneElementWakesOneWaiterInOrderOfArrival) {
  EXPECT_EQ(ask(Opcode::kWait, {"q"}, {}, 0, 1), "");
  EXPECT_EQ(ask(Opcode::kWait, {"q"}, {}, 0, 2), "");
  ask(Opcode::kQueuePush, {"q"}, {"x"}, 0, 3);
  EXPECT_EQ(replies_.take(1), kStop);
  EXPECT_EQ(replies_.take(2), "");
  ask(Opcode::kQueuePop, {"q"}, {}, 0, 1);
  ask(Opcode::kQueuePush, {"q"}, {"y"}, 0, 3);
  EXPECT_EQ(replies_.take(2), kStop);
}

TEST_F(KeyValueStoreTest, ABarrierOpensForAllWithTheLast) {
  EXPECT_EQ(ask(Opcode::kBarrier, {"b"}, {}, 3, 1), "");
  EXPECT_EQ(ask(Opcode::kBarrier, {"b"}, {}, 3, 2), "");
  EXPECT_EQ(replies_.take(1), "");
  EXPECT_EQ(ask(Opcode::kBarrier, {"b"}, {}, 3, 3), kStop);
  EXPECT_EQ(replies_.take(1), kStop);
  EXPECT_EQ(replies_.take(2), kStop);
}

// Keeps what it is sent, as a connection does whose other end does not read.
class UnreadReplies : public Replies {
 public:
  void send_bytes(ConnectionId, const Value& value) override { values.push_back(value); }
  void send_raw(ConnectionId, const Value& bytes) override { values.push_back(bytes); }
  std::vector<Value> values;
};

class MemoryBudgetTest : public testing::Test {
 protected:
  std::string ask(Opcode opcode, std::vector<std::string> keys = {}, std::vector<std::string> values = {}) {
    return store_.handle(1, {opcode, std::move(keys), std::move(values), 0}, replies_);
  }

  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(100'000);
  KeyValueStore store_{budget_};
  UnreadReplies replies_;
};

TEST_F(MemoryBudgetTest, WhatHasNoRoomIsRefusedAndTheRestGoesOn) {
  const std::string large(40'000, 'x');
  EXPECT_EQ(ask(Opcode::kSet, {"a"}, {large}), "");
  EXPECT_EQ(ask(Opcode::kQueuePush, {"q"}, {large}), "");
  EXPECT_THAT(ask(Opcode::kSet, {"b"}, {large}), testing::HasSubstr("the store is full"));
  EXPECT_THAT(ask(Opcode::kAppend, {"a"}, {large}), testing::HasSubstr("the store is full"));
  EXPECT_EQ(ask(Opcode::kGet, {"a"}), "");
  EXPECT_EQ(ask(Opcode::kSet, {"small"}, {"value"}), "");
  EXPECT_EQ(ask(Opcode::kDelete, {"a"}), "");
  replies_.values.clear();
  EXPECT_EQ(ask(Opcode::kSet, {"b"}, {large}), "");
}

TEST_F(MemoryBudgetTest, AValueCountsUntilNobodyReadsItAnyMore) {
  ask(Opcode::kSet, {"a"}, {std::string(40'000, 'x')});
  ask(Opcode::kGet, {"a"});
  ask(Opcode::kSet, {"a"}, {std::string(40'000, 'y')});
  EXPECT_GT(budget_->used(), 80'000U);
  replies_.values.clear();
  EXPECT_LT(budget_->used(), 50'000U);
}

TEST_F(MemoryBudgetTest, EverythingIsGivenBack) {
  for (int i = 0; i < 50; ++i) ask(Opcode::kSet, {"key" + std::to_string(i)}, {"value"});
  for (int i = 0; i < 50; ++i) ask(Opcode::kAppend, {"key" + std::to_string(i)}, {std::string(300, 'x')});
  ask(Opcode::kQueuePush, {"q"}, {"value"});
  ask(Opcode::kWait, {"never", "key1", "nor this"});
  ask(Opcode::kListKeys);
  EXPECT_GT(budget_->used(), 50 * 305U);
  for (int i = 0; i < 50; ++i) ask(Opcode::kDelete, {"key" + std::to_string(i)});
  ask(Opcode::kQueuePop, {"q"});
  store_.forget(1);
  replies_.values.clear();
  EXPECT_EQ(budget_->used(), 0U);
}

TEST_F(MemoryBudgetTest, ThoseWhoListTheSameKeysShareOneList) {
  for (int i = 0; i < 100; ++i) ask(Opcode::kSet, {std::string(200, 'k') + std::to_string(i)}, {""});
  const std::size_t before = budget_->used();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ask(Opcode::kListKeys), "");
  EXPECT_LT(budget_->used() - before, 30'000U);
  ask(Opcode::kSet, {"another"}, {""});
  ask(Opcode::kListKeys);
  EXPECT_NE(*replies_.values.back(), *replies_.values.front());
}

TEST_F(KeyValueStoreTest, PingEchoes) {
  EXPECT_EQ(ask(Opcode::kPing, {}, {}, 0xdeadbeef), wire::integer(0xdeadbeefU));
}

}  // namespace
}  // namespace launcher::store
