#include "launcher/nodes/elastic/etcd_keys.h"

#include <chrono>
#include <string>

#include "launcher/nodes/elastic/coordinator_lease.h"
#include "tests/support/catch.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

TEST_CASE("etcd: the name of a job is one part of the key, whatever it is") {
  CHECK(key_path("my job/../x", "coordinator") == "/ddprun/my%20job%2F..%2Fx/coordinator");
}

TEST_CASE("etcd: a coordinator keeps its place for longer than nodes may be silent") {
  CHECK(CoordinatorLease::lease_for(700ms) == 15s);
  CHECK(CoordinatorLease::lease_for(10s) == 15s);
  CHECK(CoordinatorLease::lease_for(10001ms) == 16s);
  CHECK(CoordinatorLease::lease_for(60s) == 65s);
}

TEST_CASE("etcd: who coordinates comes back as it was written") {
  const auto record = parse_coordinator_record(to_json(CoordinatorRecord{"abc", "10.0.0.1", 4711}));
  REQUIRE(record);
  CHECK(record->token == "abc");
  CHECK(record->host == "10.0.0.1");
  CHECK(record->port == 4711);
  CHECK_FALSE(parse_coordinator_record(R"({"token":"a","host":"b","port":65536})"));
  CHECK_FALSE(parse_coordinator_record(R"({"token":"a","host":"","port":1})"));
  CHECK_FALSE(parse_coordinator_record("[]"));
}

TEST_CASE("etcd: how a job has ended comes back as it was written") {
  const auto end = parse_end(to_json(JoinFailure{"the job has ended: rank 1 failed", 7}));
  REQUIRE(end);
  CHECK(end->text == "the job has ended: rank 1 failed");
  CHECK(end->exit_status == 7);
  CHECK_FALSE(parse_end(R"({"text":"a","status":256})"));
  CHECK_FALSE(parse_end(R"({"text":"a"})"));
  CHECK_FALSE(parse_end("7"));
}

TEST_CASE("etcd: what a coordinator has counted comes back on the clock of another machine") {
  const Clocks there{std::chrono::steady_clock::time_point(100h), std::chrono::system_clock::time_point(400000h)};
  const Clocks here{std::chrono::steady_clock::time_point(3h), there.system + 10min};
  const History history{.rounds = 4,
                        .nodes = 2,
                        .restarts = 3,
                        .recent_restarts = {there.steady - 20min},
                        .host_failures = {{"a", 1}, {"b", 2}}};
  const auto stored = parse_history(to_json(history, "b", there), here);
  REQUIRE(stored);
  CHECK(stored->history.rounds == 4);
  CHECK(stored->history.nodes == 2);
  REQUIRE(stored->history.recent_restarts.size() == 1);
  CHECK(stored->history.recent_restarts[0] == here.steady - 30min);
  const History after = history_for_successor(*stored, here.steady);
  CHECK(after.restarts == 4);
  CHECK(after.recent_restarts.size() == 2);
  CHECK(after.host_failures.at("b") == 3);
  const auto in_good_order = parse_history(to_json(history, "", there), here);
  CHECK(history_for_successor(*in_good_order, here.steady).restarts == 3);
  const auto before_the_first_round = parse_history(to_json(History{}, "b", there), here);
  CHECK(history_for_successor(*before_the_first_round, here.steady).restarts == 0);
  CHECK_FALSE(parse_history(R"({"host":"a","rounds":1,"nodes":1})", here));
  CHECK_FALSE(parse_history(R"({"host":"a","rounds":1,"nodes":1,"restarts":0,"recent":["x"]})", here));
  CHECK_FALSE(parse_history(R"({"host":"a","rounds":1,"nodes":1,"restarts":0,"failures":{"a":"x"}})", here));
}

}  // namespace
}  // namespace launcher::elastic
