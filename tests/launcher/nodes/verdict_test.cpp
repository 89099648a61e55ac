#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "launcher/nodes/control/heartbeat.h"
#include "launcher/nodes/rendezvous/round_coordinator.h"
#include "tests/launcher/launchers_in_one_loop.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Clock = EventLoop::Clock;
using std::chrono::system_clock;

TEST_CASE("Arbiter: the earliest failure counts, and a consequence only where there is no cause") {
  const auto now = system_clock::now();
  FirstNodeFailure arbiter;
  CHECK_FALSE(arbiter.has_cause());
  arbiter.add({.node = 1, .time = now, .is_consequence = true});
  CHECK_FALSE(arbiter.has_cause());
  arbiter.add({.node = 2, .time = now - 1s, .is_consequence = true});
  CHECK(arbiter.first()->node == 2);
  arbiter.add({.node = 3, .time = now + 5s});
  CHECK(arbiter.has_cause());
  CHECK(arbiter.first()->node == 3);
  arbiter.add({.node = 4, .time = now - 9s, .is_consequence = true});
  CHECK(arbiter.first()->node == 3);
  arbiter.add({.node = 5, .time = now + 4s});
  CHECK(arbiter.first()->node == 5);
}

TEST_CASE("Silence: questions are frequent enough, and in large jobs it is that of several of them") {
  CHECK(control::ping_interval(10'000ms, 4) == 250ms);
  CHECK(control::ping_interval(700ms, 4) == 70ms);
  CHECK(control::heartbeat_timeout(10'000ms, 64) == 10'000ms);
  CHECK(control::ping_interval(700ms, 10'000) == 400ms);
  CHECK(control::heartbeat_timeout(700ms, 10'000) == 2000ms);
}

TEST_CASE("Silence: a new connection is tried long before the end, and a node waits longer than the coordinator") {
  for (const int nodes : {2, 1'000, 10'000}) {
    for (const auto timeout : {700ms, 2'000ms, 10'000ms, 100'000ms}) {
      const auto limit = control::heartbeat_timeout(timeout, nodes);
      CHECK(control::reconnect_after(limit, nodes) >= 4 * control::ping_interval(limit, nodes));
      CHECK(control::reconnect_after(limit, nodes) < limit);
      CHECK(control::node_side_timeout(limit) > limit);
    }
  }
}

class VerdictTest : protected LaunchersInOneLoop {
 protected:
  void require_verdict(int node, const std::string& text) {
    run_until_all(knows_failure);
    for (const auto& launcher : nodes) {
      if (!launcher) continue;
      CHECK(launcher->first_failure()->node == node);
      CHECK_THAT(launcher->first_failure()->text, ContainsSubstring(text));
    }
  }
};

TEST_CASE_METHOD(VerdictTest, "Verdict: of two failures all nodes name the earlier one, whichever was heard of first") {
  meet();
  const auto now = system_clock::now();
  nodes[1]->announce({.exit_status = 1, .text = "the later one", .time = now});
  nodes[2]->announce({.exit_status = 44, .text = "the earlier one", .time = now - 5ms});
  require_verdict(2, "the earlier one");
  CHECK(nodes[0]->first_failure()->exit_status == 44);
}

TEST_CASE_METHOD(VerdictTest, "Verdict: a victim stops nobody while the rank that it lost may still be ending") {
  meet();
  is_ending[2] = true;
  nodes[1]->announce({.exit_status = 1, .text = "its peer was gone", .is_consequence = true});
  run_for(500ms);
  CHECK_FALSE(nodes[1]->first_failure());
  CHECK(heard[0].empty());
  CHECK(heard[2].empty());
  is_ending[2] = false;
  nodes[2]->announce({.exit_status = 139, .text = "the culprit"});
  require_verdict(2, "the culprit");
  CHECK(heard[0] == std::vector<std::string>{"the culprit"});
  CHECK(heard[2].empty());
}

TEST_CASE_METHOD(VerdictTest, "Verdict: a victim's failure counts when nobody else fails") {
  meet();
  nodes[1]->announce({.exit_status = 7, .text = "its peer was gone", .is_consequence = true});
  require_verdict(1, "its peer was gone");
}

TEST_CASE_METHOD(VerdictTest, "Verdict: a launcher that is gone is noticed at once by all") {
  meet();
  const auto begin = Clock::now();
  nodes[1].reset();
  require_verdict(1, "the launcher of node 1 (host ");
  CHECK(Clock::now() - begin < 1s);
  CHECK(nodes[0]->first_failure()->is_final);
}

TEST_CASE_METHOD(VerdictTest, "Verdict: launchers that were held up themselves accuse nobody") {
  meet();
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(1500ms);  // none of them does anything
    run_for(300ms);
  }
  for (const auto& node : nodes) CHECK_FALSE(node->first_failure());
}

TEST_CASE_METHOD(VerdictTest, "Verdict: the death of a node in the exit barrier ends it, and the job has failed") {
  meet();
  nodes[0]->leave(true);
  nodes[2]->leave(true);
  run_for(50ms);
  CHECK_FALSE(nodes[0]->has_left());
  nodes[1].reset();
  run_until_all(has_left);
  require_verdict(1, "is gone");
}

TEST_CASE_METHOD(VerdictTest, "Verdict: without the coordinator every node names it") {
  meet();
  nodes[0].reset();
  require_verdict(0, "the connection to node 0 broke");
  run_until_all(has_left);
}

TEST_CASE_METHOD(VerdictTest,
                 "Verdict: without the coordinator every node names it, also one that fails at that moment") {
  meet();
  nodes[1]->announce({.exit_status = 44, .text = "rank 1 failed"});
  nodes[0].reset();
  require_verdict(0, "the connection to node 0 broke");
  CHECK(nodes[1]->first_failure()->exit_status == 1);
}

TEST_CASE_METHOD(VerdictTest, "Verdict: after a failure all nodes go into the next round, and forget it") {
  meet();
  for (int round = 1; round < 4; ++round) {
    nodes[static_cast<std::size_t>(round % 3)]->announce({.exit_status = 44, .text = "round " + std::to_string(round)});
    run_until_all(knows_failure);
    for (const auto& node : nodes) {
      node->leave(false);
      CHECK(node->can_restart());
      CHECK_FALSE(node->first_failure()->is_final);
    }
    run_until_all(has_left);
    meet(round);
    for (const auto& node : nodes) CHECK_FALSE(node->first_failure());
  }
}

TEST_CASE_METHOD(VerdictTest, "Verdict: a node that does not come to the next round ends the job for those that wait") {
  meet();
  nodes[1]->announce({.exit_status = 44, .text = "rank 1 failed"});
  run_until_all(knows_failure);
  nodes[0]->begin_round(1);
  nodes[1]->begin_round(1);
  run_for(50ms);
  nodes[2].reset();
  run_until_all(cannot_meet);
  CHECK_THAT(nodes[0]->join_failure()->text, ContainsSubstring("node 2 (host "));
}

TEST_CASE_METHOD(VerdictTest, "Verdict: a node that goes between a failure and the next round ends the job for all") {
  for (const std::size_t lost : {2U, 0U}) {
    nodes.clear();
    for (int node = 0; node < nnodes; ++node) nodes.push_back(launcher(node, 1));
    meet();
    nodes[1]->announce({.exit_status = 44, .text = "rank 1 failed"});
    run_until_all(knows_failure);
    for (const auto& node : nodes) node->leave(false);
    run_until_all(has_left);
    nodes[lost].reset();
    run_for(50ms);
    for (const auto& node : nodes) {
      if (node) node->begin_round(1);
    }
    run_until_all(cannot_meet);
    for (const auto& node : nodes) {
      if (node) CHECK(node->join_failure()->exit_status == 44);
    }
  }
}

}  // namespace
}  // namespace launcher
