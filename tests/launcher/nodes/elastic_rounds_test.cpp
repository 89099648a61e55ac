#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "launcher/nodes/elastic/elastic_coordinator.h"
#include "launcher/nodes/elastic/rounds.h"
#include "launcher/plan/outcome/notices.h"
#include "tests/support/catch.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Cause = Rounds::Cause;
using Id = Rounds::Id;

const Rounds::Time kStart = Rounds::Time(1h);

class RoundsTest {
 protected:
  explicit RoundsTest(RoundsOptions chosen = {.min_nodes = 2, .max_nodes = 3, .budget = {.max_restarts = 4}})
      : options(chosen), rounds(chosen, kStart) {}

  Rounds::Decisions come(Id id) {
    const auto first = rounds.arrived(id, "host" + std::to_string(id), now);
    return first.begin || !first.rejected.empty() ? first : rounds.ready(id, now);
  }
  // All of `ids`, which are the most that there may be.
  void begin(const std::vector<Id>& ids) {
    for (const Id id : ids) come(id);
    REQUIRE(rounds.is_running());
  }
  std::vector<Id> begin_again(const std::vector<Id>& ids) {
    Rounds::Decisions last;
    for (const Id id : ids) last = rounds.ready(id, now);
    return last.begin ? last.begin->nodes : std::vector<Id>();
  }

  RoundsOptions options;
  Rounds::Time now = kStart;
  Rounds rounds;
};

TEST_CASE_METHOD(RoundsTest, "Rounds: the first one begins at once with as many nodes as there may be") {
  CHECK_FALSE(come(0).begin);
  CHECK_FALSE(come(1).begin);
  const auto last = come(2);
  REQUIRE(last.begin);
  CHECK(last.begin->round == 0);
  CHECK(last.begin->nodes == std::vector<Id>{0, 1, 2});
}

TEST_CASE_METHOD(RoundsTest, "Rounds: fewer nodes wait for more until the last call is over") {
  come(0);
  now += 7s;
  come(1);
  REQUIRE(rounds.next_time() == now + options.last_call);
  CHECK_FALSE(rounds.at(now + options.last_call - 1ms).begin);
  const auto begun = rounds.at(now + options.last_call);
  REQUIRE(begun.begin);
  CHECK(begun.begin->nodes == std::vector<Id>{0, 1});
}

TEST_CASE_METHOD(RoundsTest, "Rounds: the last call begins anew when there were too few nodes meanwhile") {
  come(0);
  come(1);
  now += options.last_call - 1s;
  rounds.left(1, now);
  CHECK(rounds.next_time() == kStart + options.join_timeout);
  come(2);
  CHECK_FALSE(rounds.at(now + 2s).begin);
  CHECK(rounds.at(now + options.last_call).begin);
}

TEST_CASE_METHOD(RoundsTest,
                 "Rounds: a coordinator that has lost sight of all others waits as long as they look for it") {
  begin({0, 1, 2});
  rounds.left(1, now, true);
  rounds.left(2, now, true);
  REQUIRE(rounds.end_round(Cause::kFailure, "host1", now).empty());
  rounds.ready(0, now);
  REQUIRE(rounds.next_time() == now + options.return_timeout);
  SECTION("they have ended") {
    CHECK_FALSE(rounds.at(now + options.return_timeout - 1ms).end);
    const auto late = rounds.at(now + options.return_timeout);
    REQUIRE(late.end);
    CHECK(late.end->exit_status == 1);
    CHECK_THAT(
        late.end->text,
        ContainsSubstring("has had no connection to any other node for so long that the other nodes have ended"));
  }
  SECTION("one of them is there again") {
    now += options.return_timeout - 1ms;
    CHECK_FALSE(come(3).begin);  // the other one may follow
    REQUIRE(rounds.next_time() == now + 3s);
    const auto begun = rounds.at(now + 3s);
    REQUIRE(begun.begin);
    CHECK(begun.begin->nodes == std::vector<Id>{0, 3});
  }
  SECTION("all of them are there again, one after the other") {
    CHECK_FALSE(come(3).begin);
    now += 1s;
    const auto begun = come(4);
    REQUIRE(begun.begin);
    CHECK(begun.begin->nodes == std::vector<Id>{0, 3, 4});
  }
}

TEST_CASE_METHOD(RoundsTest, "Rounds: a coordinator whose other nodes have ended waits for new ones") {
  begin({0, 1, 2});
  rounds.left(1, now, true);
  rounds.left(2, now);
  REQUIRE(rounds.end_round(Cause::kFailure, "host1", now).empty());
  rounds.ready(0, now);
  CHECK(rounds.next_time() == now + options.join_timeout);
  CHECK(come(3).begin);
}

TEST_CASE_METHOD(RoundsTest,
                 "Rounds: too few nodes end the job when the time to join is over, by words that say how many") {
  come(0);
  const auto end = rounds.at(kStart + options.join_timeout).end;
  REQUIRE(end);
  CHECK(end->exit_status == 124);
  CHECK_THAT(end->text, ContainsSubstring("1 of 2 to 3 nodes has joined"));
}

TEST_CASE_METHOD(RoundsTest, "Rounds: after a loss those that are left begin again once their ranks have ended") {
  begin({0, 1, 2});
  rounds.left(1, now);
  CHECK(rounds.end_round(Cause::kFailure, "host1", now).empty());
  CHECK_FALSE(rounds.ready(0, now).begin);
  const auto begun = rounds.ready(2, now).begin;
  REQUIRE(begun);
  CHECK(begun->round == 1);
  CHECK(begun->nodes == std::vector<Id>{0, 2});
}

TEST_CASE_METHOD(RoundsTest,
                 "Rounds: a node that does not get ready holds the others up no longer than the time to join") {
  begin({0, 1, 2});
  REQUIRE(rounds.end_round(Cause::kFailure, "host1", now).empty());
  rounds.ready(0, now);
  rounds.ready(1, now);
  CHECK_FALSE(rounds.at(now + options.join_timeout - 1ms).begin);
  CHECK(rounds.at(now + options.join_timeout).begin->nodes == std::vector<Id>{0, 1});
}

TEST_CASE_METHOD(RoundsTest, "Rounds: a spare is told so, and takes the place of a node that is lost") {
  begin({0, 1, 2});
  const auto spare = come(3);
  REQUIRE(spare.notices.size() == 1);
  CHECK_THAT(spare.notices[0].second, ContainsSubstring("spare"));
  rounds.left(1, now);
  REQUIRE(rounds.end_round(Cause::kFailure, "host1", now).empty());
  CHECK(begin_again({0, 2}) == std::vector<Id>{0, 2, 3});
}

TEST_CASE_METHOD(RoundsTest, "Rounds: a node that comes later is taken in at the next restart") {
  come(0);
  come(1);
  REQUIRE(rounds.at(now + options.last_call).begin);
  const auto late = come(2);
  CHECK_FALSE(late.stop);
  CHECK_THAT(late.notices.at(0).second, ContainsSubstring("next restart"));
  REQUIRE(rounds.end_round(Cause::kFailure, "host1", now).empty());
  CHECK(begin_again({0, 1}) == std::vector<Id>{0, 1, 2});
}

TEST_CASE("Rounds: with join_restart a node that comes later ends the round, which costs none of the restarts") {
  const RoundsOptions options{.min_nodes = 1, .max_nodes = 2, .join_restart = true, .last_call = 0ms};
  Rounds rounds(options, kStart);
  rounds.arrived(0, "a", kStart);
  REQUIRE(rounds.ready(0, kStart).begin);
  rounds.arrived(1, "b", kStart);
  const auto late = rounds.ready(1, kStart);
  REQUIRE(late.stop);
  CHECK_THAT(*late.stop, ContainsSubstring("host b"));
  CHECK(rounds.end_round(Cause::kJoin, "a", kStart).empty());
  CHECK(rounds.ready(0, kStart).begin->nodes == std::vector<Id>{0, 1});
}

TEST_CASE("Rounds: a job that is about to end well is not stopped for a node that comes") {
  Rounds rounds({.min_nodes = 1, .max_nodes = 2, .join_restart = true, .last_call = 0ms}, kStart);
  rounds.arrived(0, "a", kStart);
  REQUIRE(rounds.ready(0, kStart).begin);
  rounds.ended_well();
  rounds.arrived(1, "b", kStart);
  CHECK_FALSE(rounds.ready(1, kStart).stop);
}

TEST_CASE("Rounds: a host that has failed often enough is left out, and so is who comes from there") {
  Rounds rounds({.min_nodes = 1, .max_nodes = 3, .budget = {.max_restarts = 9}, .host_failures = 2}, kStart);
  const auto ready = [&](Id id) { return rounds.ready(id, kStart); };
  rounds.arrived(0, "a", kStart);
  rounds.arrived(1, "b", kStart);
  rounds.arrived(2, "c", kStart);
  for (const Id id : {0, 1, 2}) ready(id);
  REQUIRE(rounds.end_round(Cause::kFailure, "b", kStart).empty());
  CHECK(rounds.left_out().rejected.empty());
  for (const Id id : {0, 1, 2}) ready(id);
  REQUIRE(rounds.end_round(Cause::kFailure, "b", kStart).empty());
  const auto away = rounds.left_out().rejected;
  REQUIRE(away.size() == 1);
  CHECK(away[0].first == 1);
  CHECK_THAT(away[0].second.text, ContainsSubstring("host b has failed 2 times"));
  ready(0);
  CHECK(ready(2).begin->nodes == std::vector<Id>{0, 2});
  CHECK(rounds.arrived(7, "b", kStart).rejected.size() == 1);
}

TEST_CASE("Rounds: the job ends when the host that coordinates it would be left out") {
  Rounds rounds({.min_nodes = 1, .max_nodes = 2, .budget = {.max_restarts = 9}, .host_failures = 1, .last_call = 0ms},
                kStart);
  rounds.arrived(0, "a", kStart);
  rounds.ready(0, kStart);
  CHECK_THAT(rounds.end_round(Cause::kFailure, "a", kStart), ContainsSubstring("which coordinates the job"));
}

TEST_CASE("RestartBudget: restarts within an hour are limited, and come back with time") {
  RestartBudget budget({.max_restarts = 5, .restarts_per_hour = 2});
  CHECK(budget.reason_to_end(kStart).empty());
  budget.take(kStart);
  budget.take(kStart + 10min);
  CHECK_THAT(budget.reason_to_end(kStart + 59min), ContainsSubstring("--restarts_per_hour"));
  CHECK(budget.reason_to_end(kStart + 61min).empty());
  budget.take(kStart + 61min);
  CHECK_THAT(budget.reason_to_end(kStart + 62min), ContainsSubstring("2 times within an hour"));
  CHECK(budget.used() == 3);
}

TEST_CASE_METHOD(RoundsTest, "Rounds: a node that was told to stop costs none of the restarts, a failure does") {
  begin({0, 1, 2});
  rounds.left(2, now);
  CHECK(rounds.end_round(Cause::kDeparture, "host2", now).empty());
  CHECK(rounds.history(now).restarts == 0);
  REQUIRE(begin_again({0, 1}).size() == 2);
  CHECK(rounds.end_round(Cause::kFailure, "host1", now).empty());
  CHECK(rounds.history(now).restarts == 1);
}

TEST_CASE("Rounds: a new coordinator goes on where the old one was, with those that find it") {
  const History history{
      .rounds = 4, .nodes = 2, .restarts = 3, .recent_restarts = {kStart}, .host_failures = {{"x", 1}}};
  Rounds rounds({.min_nodes = 1, .max_nodes = 9, .budget = {.max_restarts = 4}}, kStart, history);
  rounds.arrived(0, "a", kStart);
  CHECK_FALSE(rounds.ready(0, kStart).begin);
  rounds.arrived(1, "b", kStart);
  const auto begun = rounds.ready(1, kStart).begin;
  REQUIRE(begun);
  CHECK(begun->round == 4);
  CHECK(rounds.end_round(Cause::kFailure, "b", kStart).empty());
  rounds.ready(0, kStart);
  REQUIRE(rounds.ready(1, kStart).begin);
  CHECK_THAT(rounds.end_round(Cause::kFailure, "b", kStart), ContainsSubstring("--max_restarts"));
}

TEST_CASE("Rounds: a coordinator that was lost when no restart was left is followed by no other") {
  const RoundsOptions options{.min_nodes = 1, .max_nodes = 9, .budget = {.max_restarts = 2, .restarts_per_hour = 2}};
  const auto first = [&](History history) { return Rounds(options, kStart, history).arrived(0, "a", kStart).end; };
  CHECK_FALSE(first({}));
  CHECK_FALSE(first({.rounds = 3, .nodes = 2, .restarts = 2}));
  const auto all = first({.rounds = 3, .nodes = 2, .restarts = 3});  // its loss was one more
  REQUIRE(all);
  CHECK_THAT(all->text, ContainsSubstring("not restarted: it was restarted 2 times, as often as --max_restarts"));
  CHECK(all->exit_status == 1);
  const auto within_hour = first({.rounds = 3, .nodes = 2, .restarts = 2, .recent_restarts = {3, kStart}});
  REQUIRE(within_hour);
  CHECK_THAT(within_hour->text, ContainsSubstring("2 times within an hour"));
}

// What a coordinator does with the decisions, against a crowd of nodes that come, go and fail as the dice say.
class Crowd {
 public:
  explicit Crowd(std::uint32_t seed) : dice_(seed) {
    options_.min_nodes = 1 + roll(3);
    options_.max_nodes = options_.min_nodes + roll(4);
    options_.budget = {.max_restarts = roll(8), .restarts_per_hour = roll(4)};
    options_.host_failures = roll(3);
    options_.join_restart = roll(2) == 0;
    options_.order_by_host = roll(2) == 0;
    rounds_.emplace(options_, now_);
    apply(rounds_->arrived(next_++, "host0", now_));
    nodes_.insert(0);
  }

  // False once the job is over.
  bool step() {
    if (is_over_) return false;
    now_ += std::chrono::seconds(roll(40));
    apply(rounds_->at(now_));
    switch (roll(6)) {
      case 0:
        if (nodes_.size() < 9) come();
        break;
      case 1:
        if (const Id id = any(); id != 0) go(id);
        break;
      case 2:
        if (rounds_->is_running()) fail(Cause::kFailure, any_of_round());
        break;
      default:
        apply(rounds_->ready(any(), now_));
    }
    return true;
  }
  // Nothing happens any more but that time goes by and all that are there are ready.
  bool comes_to_rest() {
    for (int i = 0; i < 20 && !is_over_ && !rounds_->is_running(); ++i) {
      for (const Id id : std::set<Id>(nodes_)) {
        if (nodes_.contains(id) && !is_over_) apply(rounds_->ready(id, now_));
      }
      if (const auto next = rounds_->next_time(); next && !is_over_) now_ = std::max(now_, *next);
      if (!is_over_) apply(rounds_->at(now_));
    }
    return is_over_ || rounds_->is_running();
  }

 private:
  int roll(int sides) { return std::uniform_int_distribution<int>(0, sides - 1)(dice_); }
  Id any() { return *std::next(nodes_.begin(), roll(static_cast<int>(nodes_.size()))); }
  Id any_of_round() { return round_[static_cast<std::size_t>(roll(static_cast<int>(round_.size())))]; }
  static std::string host(Id id) { return "host" + std::to_string(id % 7); }
  void come() {
    const Id id = next_++;
    nodes_.insert(id);
    apply(rounds_->arrived(id, host(id), now_));
  }
  void go(Id id) {
    const bool took_part = rounds_->is_running() && std::find(round_.begin(), round_.end(), id) != round_.end();
    nodes_.erase(id);
    apply(rounds_->left(id, now_));
    if (took_part) fail(roll(2) == 0 ? Cause::kFailure : Cause::kDeparture, id);
  }
  void fail(Cause cause, Id culprit) {
    if (is_over_) return;
    const int before = rounds_->history(now_).restarts;
    const std::string reason = rounds_->end_round(cause, host(culprit), now_);
    is_over_ = !reason.empty();
    if (is_over_) return;
    const History history = rounds_->history(now_);
    CHECK(history.restarts == before + (cause == Cause::kFailure ? 1 : 0));
    CHECK(history.restarts <= options_.budget.max_restarts);
    if (options_.budget.restarts_per_hour > 0) {
      CHECK(static_cast<int>(history.recent_restarts.size()) <= options_.budget.restarts_per_hour);
    }
    apply(rounds_->left_out());
  }
  void apply(const Rounds::Decisions& decisions) {
    for (const auto& [id, reason] : decisions.rejected) {
      CHECK(id != 0);
      nodes_.erase(id);
      apply(rounds_->left(id, now_));
    }
    if (decisions.end) is_over_ = true;
    if (decisions.begin) check(*decisions.begin);
    if (decisions.stop) {
      CHECK(options_.join_restart);
      CHECK(static_cast<int>(round_.size()) < options_.max_nodes);
      fail(Cause::kJoin, 0);
    }
  }
  void check(const Rounds::Begin& begin) {
    CHECK(static_cast<int>(begin.nodes.size()) >= options_.min_nodes);
    CHECK(static_cast<int>(begin.nodes.size()) <= options_.max_nodes);
    CHECK(begin.nodes.front() == 0);
    CHECK(std::set<Id>(begin.nodes.begin(), begin.nodes.end()).size() == begin.nodes.size());
    for (const Id id : begin.nodes) CHECK(nodes_.contains(id));
    CHECK(begin.round == next_round_);
    next_round_ = begin.round + 1;
    round_ = begin.nodes;
  }

  std::mt19937 dice_;
  RoundsOptions options_;
  Rounds::Time now_ = kStart;
  std::optional<Rounds> rounds_;
  Id next_ = 0;
  int next_round_ = 0;
  bool is_over_ = false;
  std::set<Id> nodes_;
  std::vector<Id> round_;
};

TEST_CASE("Rounds: whatever happens, each has the nodes that it may have, budgets hold, and none waits for ever") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Crowd crowd(seed);
    for (int step = 0; step < 200 && crowd.step(); ++step) continue;
    CHECK(crowd.comes_to_rest());
  }
}

FailureNotice of_node(int node, FailureNotice notice) {
  notice.node = node;
  return notice;
}

// What a launcher says that could not start its ranks.
FailureNotice cannot_start() {
  return {.exit_status = 125, .text = "cannot start a process", .is_final = true};
}

TEST_CASE("cause_of: the death of a launcher ends the job only where the others need it") {
  for (const auto& notice : {notice_of_loss("h"), cannot_start()}) {
    CHECK(cause_of(of_node(0, notice), true) == Cause::kCoordinatorLoss);
    CHECK(cause_of(of_node(0, notice), false) == Cause::kFinal);
    CHECK(cause_of(of_node(1, notice), true) == Cause::kFailure);
    CHECK(cause_of(of_node(1, notice), false) == Cause::kFailure);
  }
}

TEST_CASE("cause_of: a launcher that is told to stop leaves, and no failure is counted") {
  CHECK(cause_of(of_node(0, notice_of_stop("h", 15)), true) == Cause::kDeparture);
  CHECK(cause_of(of_node(0, notice_of_stop("h", 15)), false) == Cause::kFinal);
  CHECK(cause_of(of_node(2, notice_of_stop("h", 15)), false) == Cause::kDeparture);
}

TEST_CASE("cause_of: the end of the job's time is decided for all nodes, wherever it was noticed") {
  for (const int node : {0, 1}) {
    for (const bool is_replaceable : {true, false}) {
      CHECK(cause_of(of_node(node, notice_of_timeout("h", "late", false)), is_replaceable) == Cause::kFinal);
      CHECK(cause_of(of_node(node, notice_of_timeout("h", "hang", true)), is_replaceable) == Cause::kFailure);
      CHECK(cause_of(of_node(node, {.exit_status = 7}), is_replaceable) == Cause::kFailure);
      CHECK(cause_of(of_node(node, {.is_regrouping = true}), is_replaceable) == Cause::kJoin);
    }
  }
}

TEST_CASE("hands_over: only a coordinator that ends does") {
  CHECK(hands_over(of_node(0, notice_of_loss("h")), Cause::kCoordinatorLoss));
  CHECK(hands_over(of_node(0, notice_of_stop("h", 15)), Cause::kDeparture));
  CHECK_FALSE(hands_over(of_node(1, notice_of_stop("h", 15)), Cause::kDeparture));
  CHECK_FALSE(hands_over(of_node(0, {.exit_status = 7}), Cause::kFailure));
}

TEST_CASE_METHOD(RoundsTest, "Rounds: the loss of a coordinator is a failure of its host and takes a restart") {
  begin({0, 1, 2});
  CHECK(rounds.end_round(Cause::kCoordinatorLoss, "host0", now) == "");
  const History history = rounds.history(now);
  CHECK(history.restarts == 1);
  CHECK(history.host_failures.at("host0") == 1);
  CHECK(history.rounds == 1);
}

TEST_CASE("Rounds: a coordinator that ends is not the one that --host_failures leaves out") {
  const RoundsOptions options{.min_nodes = 1, .max_nodes = 2, .budget = {.max_restarts = 4}, .host_failures = 1};
  for (const Cause cause : {Cause::kCoordinatorLoss, Cause::kFailure}) {
    Rounds rounds(options, kStart);
    for (const Id id : {Id{0}, Id{1}}) {
      rounds.arrived(id, "host" + std::to_string(id), kStart);
      rounds.ready(id, kStart);
    }
    REQUIRE(rounds.is_running());
    CHECK((rounds.end_round(cause, "host0", kStart) == "") == (cause == Cause::kCoordinatorLoss));
  }
}

TEST_CASE_METHOD(RoundsTest, "Rounds: the loss of a coordinator ends the job when no restart is left") {
  begin({0, 1, 2});
  for (int restart = 0; restart < 4; ++restart) {
    REQUIRE(rounds.end_round(Cause::kFailure, "host1", now) == "");
    begin_again({0, 1, 2});
  }
  CHECK(rounds.end_round(Cause::kCoordinatorLoss, "host0", now) ==
        "it was restarted 4 times, as often as --max_restarts allows");
}

TEST_CASE("Rounds: a coordinator that was lost before it recorded the first round costs a restart, and no last call") {
  const RoundsOptions options{.min_nodes = 2, .max_nodes = 3, .budget = {.max_restarts = 1}, .last_call = 100s};
  Rounds rounds(options, kStart);
  rounds.arrived(0, "a", kStart);
  rounds.ready(0, kStart, 1);
  rounds.arrived(1, "b", kStart);
  CHECK_FALSE(rounds.ready(1, kStart, 1).begin);  // a third node may come
  CHECK(rounds.history(kStart).restarts == 1);
  const auto begun = rounds.at(*rounds.next_time()).begin;
  REQUIRE(begun);
  CHECK(begun->round == 1);
  CHECK(*rounds.history(kStart).recent_restarts.begin() == kStart);
  CHECK_THAT(rounds.end_round(Cause::kFailure, "b", kStart), ContainsSubstring("--max_restarts"));
}

TEST_CASE("Rounds: a coordinator that was lost in the first round ends a job without restarts") {
  Rounds rounds({.min_nodes = 2, .max_nodes = 3}, kStart);
  rounds.arrived(0, "a", kStart);
  const auto end = rounds.ready(0, kStart, 1).end;
  REQUIRE(end);
  CHECK_THAT(end->text, ContainsSubstring("was lost, and the job is not restarted: --max_restarts is 0"));
}

TEST_CASE("Rounds: nodes that know of a later round than the new coordinator get one after that") {
  // The coordinator before was killed when round 4 had just begun, and could not record that.
  const History history{.rounds = 4, .nodes = 2};
  Rounds rounds({.min_nodes = 1, .max_nodes = 3}, kStart, history);
  rounds.arrived(0, "a", kStart);
  rounds.ready(0, kStart, 5);
  rounds.arrived(1, "b", kStart);
  const auto begun = rounds.ready(1, kStart, 5).begin;
  REQUIRE(begun);
  CHECK(begun->round == 5);
  // What one says that comes while a round runs changes nothing.
  rounds.arrived(2, "c", kStart);
  rounds.ready(2, kStart, 9);
  CHECK(rounds.round() == 5);
}

}  // namespace
}  // namespace launcher::elastic
