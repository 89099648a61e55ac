// Ranks ask each other where they are, and take leave of each other. Their store lies in this process's memory.
#include "comm/group/desync_debugger.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/group/peers.h"
#include "comm/group/store_keys.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kAnswerLimit = 20s;
constexpr auto kNoAnswerWithin = 100ms;  // for answers that must not come

std::shared_ptr<CallLog> log_with(const std::string& signature) {
  auto log = std::make_shared<CallLog>();
  log->begin(0, signature);
  return log;
}

class DesyncDebuggers {
 protected:
  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  DesyncDebugger first_{store_, nullptr, 0};
  DesyncDebugger second_{store_, nullptr, 1};
};

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: a rank answers with its calls in the group that it is asked about") {
  const auto log = log_with("barrier");
  const auto of_subgroup = log_with("all_reduce");
  second_.add("", log);
  second_.add("subgroup1/", of_subgroup);
  auto reports = first_.ask(*store_, "", {1}, kAnswerLimit);
  REQUIRE(reports.size() == 1);
  CHECK((reports.at(1).calls == log->report().calls));  // of a type that cannot be printed
  log->end(0);
  CHECK(first_.ask(*store_, "", {1}, kAnswerLimit).at(1).calls.front().ended);
  CHECK(first_.ask(*store_, "subgroup1/", {1}, kAnswerLimit).at(1).calls.front().signature == "all_reduce");
  UNSCOPED_INFO("a rank may ask itself");
  CHECK(second_.ask(*store_, "", {1}, kAnswerLimit).size() == 1);
}

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: of a group that is not there, or no longer, there are no calls") {
  CHECK(first_.ask(*store_, "subgroup9/", {1}, kAnswerLimit).at(1) == RankReport{});
  second_.add("", log_with("barrier"));  // which has gone by now
  CHECK(first_.ask(*store_, "", {1}, kAnswerLimit).at(1) == RankReport{});
}

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: who does not answer within the limit is left out") {
  const auto begin = Clock::now();
  CHECK_FALSE(first_.ask(*store_, "", {0, 1, 7}, kNoAnswerWithin).contains(7));
  CHECK(Clock::now() - begin >= kNoAnswerWithin);
  CHECK(first_.ask(*store_, "", {}, kAnswerLimit).empty());
}

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: a rank that has stopped answers no longer") {
  second_.stop();
  second_.stop();  // twice is once
  CHECK(first_.ask(*store_, "", {1}, kNoAnswerWithin).empty());
}

TEST_CASE_METHOD(DesyncDebuggers,
                 "DesyncDebugger: any number of questions leaves nothing in the store but their numbers") {
  for (int round = 0; round < 20; ++round) REQUIRE(first_.ask(*store_, "", {0, 1}, kAnswerLimit).size() == 2);
  CHECK(store_->getNumKeys() == 2);
}

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: several may ask at once") {
  std::vector<std::thread> asking;
  std::vector<size_t> answers(4);
  for (size_t i = 0; i < answers.size(); ++i) {
    asking.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) answers[i] += first_.ask(*store_, "", {0, 1}, kAnswerLimit).size();
    });
  }
  for (std::thread& thread : asking) thread.join();
  CHECK(answers == std::vector<size_t>(4, 20));
}

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: the first verdict that a rank is told is the one that counts") {
  CHECK_FALSE(second_.verdict_of("").has_value());
  first_.send_verdict(*store_, "", {1}, "; did not take part in it: rank 2\nin two lines");
  first_.send_verdict(*store_, "", {1}, "; something else");
  first_.send_verdict(*store_, "subgroup1/", {1}, "");
  static_cast<void>(first_.ask(*store_, "", {1}, kAnswerLimit));  // answered in order, so the verdicts have come
  CHECK(second_.verdict_of("") == "; did not take part in it: rank 2\nin two lines");
  CHECK(second_.verdict_of("subgroup1/") == "");
  CHECK_FALSE(first_.verdict_of("").has_value());
  UNSCOPED_INFO("and that it knows is known");
  CHECK(store_->check({keys::learned(1)}));
}

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: a failure is noted for good") {
  CHECK_FALSE(first_.has_failed());
  first_.note_failure();
  CHECK(first_.has_failed());
  CHECK_FALSE(second_.has_failed());
}

TEST_CASE_METHOD(DesyncDebuggers, "DesyncDebugger: a question that is none is passed over") {
  for (const char* question : {"", "where", "verdict", "verdict ", "verdict subgroup3/", "stop", "\n", "\xff\xff"}) {
    store_->set(keys::question(1, store_->add(keys::questions(1), 1)), std::string(question));
  }
  CHECK(first_.ask(*store_, "", {1}, kAnswerLimit).size() == 1);
}

RankInfo rank_of(int rank, int size) {
  return {.rank = rank, .world_size = size, .local_rank = rank, .local_world_size = size};
}

void set(c10d::Store& store, const std::string& key) {
  store.set(key, std::string("1"));
}

TEST_CASE("Peers: who has announced itself is awaited until it has one of the marks") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (int rank = 0; rank < 4; ++rank) set(*store, keys::present(rank));
  std::thread leaving([&] {
    set(*store, keys::learned(1));
    set(*store, keys::silent(2));
    set(*store, keys::exited(3));
  });
  wait_for_ranks(rank_of(0, 4), {}, *store, {keys::learned, keys::exited, keys::silent}, kAnswerLimit);
  CHECK(store->check({keys::learned(1), keys::silent(2), keys::exited(3)}));
  leaving.join();
}

TEST_CASE("Peers: a rank that does not announce itself is not awaited, and nobody awaits itself") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  set(*store, keys::present(0));
  set(*store, keys::present(2));
  set(*store, keys::exited(2));
  const auto begin = Clock::now();
  wait_for_ranks(rank_of(0, 4), {}, *store, {keys::exited}, kAnswerLimit);
  wait_for_ranks(rank_of(0, 1), {}, *store, {keys::exited}, kAnswerLimit);
  CHECK(Clock::now() - begin < kAnswerLimit);
}

TEST_CASE("Peers: a rank that never leaves is awaited for the limit and no longer") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (int rank = 0; rank < 2; ++rank) set(*store, keys::present(rank));
  const auto begin = Clock::now();
  wait_for_ranks(rank_of(0, 2), {}, *store, {keys::exited}, kNoAnswerWithin);
  CHECK(Clock::now() - begin >= kNoAnswerWithin);
}

struct GoneStore final : c10d::HashStore {
  bool check(const std::vector<std::string>&) override { throw std::runtime_error("gone"); }
};

TEST_CASE("Peers: a store that has gone ends the waiting, and throws nothing") {
  GoneStore store;
  const auto begin = Clock::now();
  wait_for_ranks(rank_of(0, 2), {}, store, {keys::exited}, kAnswerLimit);
  CHECK(Clock::now() - begin < kAnswerLimit);
}

}  // namespace
}  // namespace ddp::detail
