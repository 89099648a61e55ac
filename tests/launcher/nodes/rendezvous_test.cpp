#include "launcher/nodes/rendezvous/rendezvous.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/launcher/launchers_in_one_loop.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

class RendezvousTest : protected LaunchersInOneLoop {};

TEST_CASE("RendezvousKinds: are chosen by nodes and name") {
  CHECK(find_rendezvous(options(2))->name == "static");
  CHECK(find_rendezvous(options(2, 0, "static")) == find_rendezvous(options(2)));
  CHECK(find_rendezvous(options(2, 0, "no-such")) == nullptr);
  CHECK(find_rendezvous(options(1, 0, "no-such")) != find_rendezvous(options(2)));
  CHECK(find_rendezvous(options(2, 0, "c10d"))->name == "c10d");
  CHECK(rendezvous_names() == "'static', 'c10d', 'etcd' or 'etcd-v2'");
}

TEST_CASE("RendezvousKinds: say what does not fit") {
  CHECK(find_rendezvous(options(2))->option_conflict(options(2, 1)) == "");
  CHECK(find_rendezvous(options(2))->option_conflict(options(2, 2)) ==
        "--node_rank 2 is too large: with --nnodes 2 the nodes are numbered from 0 to 1");
  CHECK(find_rendezvous(options(1))->option_conflict(options(1, 1)) ==
        "--node_rank 1 is too large: with --nnodes 1 there is node 0 only; for several nodes give --nnodes");
}

TEST_CASE("SingleNode: has met at once, and each round has a fresh store") {
  EventLoop loop;
  Silence messages;
  const auto node = find_rendezvous(options(1))->make(loop, messages, {.local_world_size = 4, .master_addr = "here"});
  node->begin_round(0);
  REQUIRE(node->info());
  CHECK(node->info()->place.ranks.world_size == 4);
  CHECK(node->info()->master_addr == "here");
  CHECK(node->info()->master_port == node->store()->port());
  node->announce({.exit_status = 1, .text = "a rank failed"});
  CHECK_FALSE(node->first_failure());
  node->leave(true);
  CHECK(node->has_left());
  node->begin_round(1);
  REQUIRE(node->store() != nullptr);
  CHECK(node->info()->master_port == node->store()->port());
  CHECK(node->store()->connections() == 0U);
}

TEST_CASE("SingleNode: opens no store where rank 0 does") {
  EventLoop loop;
  Silence messages;
  const auto node = find_rendezvous(options(1))->make(loop, messages, {.agent_store = false});
  node->begin_round(0);
  CHECK(node->store() == nullptr);
  CHECK(node->info()->master_port > 0);
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: nodes of different sizes get consecutive ranks") {
  meet();
  const std::vector<int> first_ranks = {0, 1, 3};
  for (std::size_t node = 0; node < 3; ++node) {
    const NodePlace& place = nodes[node]->info()->place;
    CHECK(place.group_rank == static_cast<int>(node));
    CHECK(place.group_world_size == 3);
    CHECK(place.ranks.first_rank == first_ranks[node]);
    CHECK(place.ranks.world_size == 6);
    CHECK((nodes[node]->store() != nullptr) == (node == 0));
  }
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: nobody has met before the last one") {
  nodes[0]->begin_round(0);
  nodes[2]->begin_round(0);
  run_for(300ms);
  CHECK_FALSE(nodes[0]->info());
  CHECK_FALSE(nodes[2]->info());
  nodes[1]->begin_round(0);
  run_until([&] { return nodes[0]->info() && nodes[1]->info() && nodes[2]->info(); });
}

TEST_CASE_METHOD(RendezvousTest,
                 "Rendezvous: a node that came back with other ranks before all have met counts as it is now") {
  nodes[0]->begin_round(0);
  nodes[1]->begin_round(0);
  run_for(100ms);  // node 0 knows of it
  nodes[1].reset();
  nodes[1] = launcher(1, 5);
  nodes[1]->begin_round(0);
  run_for(100ms);
  nodes[2]->begin_round(0);
  run_until([&] { return nodes[0]->info() && nodes[1]->info() && nodes[2]->info(); });
  const std::vector<int> first_ranks = {0, 1, 6};
  for (std::size_t node = 0; node < 3; ++node) {
    CHECK(nodes[node]->info()->place.ranks.first_rank == first_ranks[node]);
    CHECK(nodes[node]->info()->place.ranks.world_size == 9);
  }
}

TEST_CASE_METHOD(RendezvousTest,
                 "Rendezvous: a node that went before all had met is waited for, not taken for one that is there") {
  nodes[0]->begin_round(0);
  nodes[1]->begin_round(0);
  run_for(100ms);  // node 0 knows of it
  nodes[1].reset();
  nodes[2]->begin_round(0);
  run_for(300ms);
  CHECK_FALSE(nodes[0]->info());
  CHECK_FALSE(nodes[2]->info());
  nodes[1] = launcher(1, 2);
  nodes[1]->begin_round(0);
  run_until([&] { return nodes[0]->info() && nodes[1]->info() && nodes[2]->info(); });
  CHECK(nodes[2]->info()->place.ranks.world_size == 6);
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: the first failure is told to all others, and only that") {
  meet();
  nodes[1]->announce({.exit_status = 44, .text = "rank 1 failed"});
  run_until([&] { return nodes[0]->first_failure() && nodes[1]->first_failure() && nodes[2]->first_failure(); });
  nodes[2]->announce({.exit_status = 45, .text = "rank 3 failed"});
  for (const auto& node : nodes) node->leave(false);
  run_until([&] { return nodes[0]->has_left() && nodes[1]->has_left() && nodes[2]->has_left(); });
  for (const auto& node : nodes) {
    CHECK(node->first_failure()->node == 1);
    CHECK(node->first_failure()->exit_status == 44);
  }
  CHECK(heard[0] == std::vector<std::string>{"rank 1 failed"});
  CHECK(heard[1] == std::vector<std::string>{});
  CHECK(heard[2] == std::vector<std::string>{"rank 1 failed"});
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: a node that gives up before all have met ends the job for all") {
  nodes[0]->begin_round(0);
  nodes[2]->begin_round(0);
  run_for(50ms);
  nodes[2]->announce({.exit_status = 124, .text = "the time was over"});
  run_until([&] { return nodes[0]->join_failure() && nodes[2]->join_failure(); });
  nodes[1]->begin_round(0);  // it was on its way
  run_until([&] { return nodes[1]->join_failure().has_value(); });
  for (const auto& node : nodes) {
    CHECK(node->join_failure()->exit_status == 124);
    CHECK_THAT(node->join_failure()->text, Catch::Matchers::StartsWith("node 2 (host "));
    CHECK_THAT(node->join_failure()->text, Catch::Matchers::EndsWith("): the time was over"));
  }
  run_until_all(has_left);
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: a node that was stopped before all have met may come again") {
  nodes[0]->begin_round(0);
  nodes[2]->begin_round(0);
  run_for(50ms);
  nodes[2]->announce({.exit_status = 143, .text = "told to stop", .may_rejoin = true});
  nodes[2] = launcher(2, 7);
  nodes[1]->begin_round(0);
  run_for(50ms);
  CHECK_FALSE(nodes[1]->info());
  nodes[2]->begin_round(0);
  run_until_all(has_met);
  CHECK(nodes[0]->info()->place.ranks.world_size == 10);
}

TEST_CASE_METHOD(RendezvousTest,
                 "Rendezvous: a node 0 that went before all had met is looked for until it is there again") {
  nodes[0]->begin_round(0);
  nodes[1]->begin_round(0);
  run_for(100ms);  // node 0 knows of it
  nodes[0].reset();
  run_for(100ms);
  CHECK_FALSE(nodes[1]->join_failure());
  nodes[0] = launcher(0, 4);
  nodes[0]->begin_round(0);
  nodes[2]->begin_round(0);
  run_until_all(has_met);
  CHECK(nodes[1]->info()->place.ranks.world_size == 9);
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: a node 0 that does not come again is waited for as one that never came") {
  RendezvousSettings settings = settings_of(1, 1);
  settings.join_timeout = 2s;
  nodes[1] = launcher(std::move(settings));
  nodes[0]->begin_round(0);
  nodes[1]->begin_round(0);
  run_for(100ms);
  nodes[0].reset();
  run_for(1s);
  CHECK_FALSE(nodes[1]->join_failure());
  run_until([&] { return nodes[1]->join_failure().has_value(); });
  CHECK(nodes[1]->join_failure()->exit_status == 124);
  CHECK_THAT(nodes[1]->join_failure()->text, Catch::Matchers::ContainsSubstring("did not answer"));
}

class SameCommandTest : protected LaunchersInOneLoop {
 protected:
  SameCommandTest() : LaunchersInOneLoop(3, "c10d") {}
};

TEST_CASE_METHOD(SameCommandTest,
                 "Rendezvous: another node at the endpoint hosts the store when the first one went before all met") {
  nodes[0]->begin_round(0);
  run_for(100ms);
  nodes[1]->begin_round(0);
  run_for(100ms);
  nodes[0].reset();
  nodes[2]->begin_round(0);
  run_until([&] { return nodes[1]->store() != nullptr || nodes[2]->store() != nullptr; });
  nodes[0] = launcher(0, 1);
  nodes[0]->begin_round(0);
  run_until_all(has_met);
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: nobody leaves in peace before the last one") {
  meet();
  nodes[0]->leave(true);
  nodes[1]->leave(true);
  run_for(300ms);
  CHECK_FALSE(nodes[0]->has_left());
  CHECK_FALSE(nodes[1]->has_left());
  nodes[2]->leave(true);
  run_until([&] { return nodes[0]->has_left() && nodes[1]->has_left() && nodes[2]->has_left(); });
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: a failure ends the wait of those that ended well") {
  meet();
  nodes[0]->leave(true);
  nodes[1]->leave(true);
  nodes[2]->announce({.exit_status = 7, .text = "rank 3 failed"});
  nodes[2]->leave(false);
  run_until([&] { return nodes[0]->has_left() && nodes[1]->has_left() && nodes[2]->has_left(); });
  CHECK(nodes[0]->first_failure()->exit_status == 7);
  CHECK(nodes[1]->first_failure()->exit_status == 7);
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: a lost node 0 is a failure") {
  meet();
  nodes[0].reset();
  run_until([&] { return nodes[1]->first_failure() && nodes[2]->first_failure(); });
  CHECK(heard[1].size() == 1U);
  CHECK(nodes[1]->first_failure()->node == 0);
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: node 0 that goes between two rounds is missed in the next one") {
  meet();
  nodes[1]->announce({.exit_status = 44, .text = "rank 1 failed"});
  run_until_all(knows_failure);
  nodes[0].reset();
  run_for(50ms);
  nodes[1]->begin_round(1);
  nodes[2]->begin_round(1);
  run_until_all(cannot_meet);
  CHECK_THAT(nodes[1]->join_failure()->text, Catch::Matchers::ContainsSubstring("the connection to node 0 broke"));
  CHECK(nodes[1]->join_failure()->exit_status == 44);  // of the failure before
}

TEST_CASE_METHOD(RendezvousTest, "Rendezvous: a new round meets again") {
  meet();
  nodes[1]->announce({.exit_status = 44, .text = "rank 1 failed"});
  run_until([&] { return nodes[0]->first_failure() && nodes[1]->first_failure() && nodes[2]->first_failure(); });
  for (const auto& node : nodes) node->begin_round(1);
  CHECK_FALSE(nodes[1]->info());
  run_until([&] { return nodes[0]->info() && nodes[1]->info() && nodes[2]->info(); });
  for (const auto& node : nodes) CHECK_FALSE(node->first_failure());
}

}  // namespace
}  // namespace launcher
