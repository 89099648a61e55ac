#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/rendezvous/coordinator.h"
#include "launcher/nodes/rendezvous/duplicate_coordinator.h"
#include "launcher/nodes/rendezvous/member.h"
#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "launcher/os/system/host_name.h"
#include "tests/launcher/launchers_in_one_loop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Clock = EventLoop::Clock;

class AgreementTest : protected LaunchersInOneLoop {
 protected:
  // Node 2 was started with other settings than the others: all end, and say so.
  void disagree(const RendezvousSettings& other, const std::string& theirs, const std::string& ours) {
    nodes[2] = launcher(other);
    begin(0);
    run_until_all(cannot_meet);
    for (const auto& node : nodes) {
      const JoinFailure failure = *node->join_failure();
      CHECK(failure.exit_status == 125);
      CHECK_THAT(failure.text, ContainsSubstring(theirs) && ContainsSubstring(ours));
    }
    run_until_all(has_left);
  }
};

TEST_CASE_METHOD(AgreementTest, "Agreement: another --nnodes is noticed by all") {
  RendezvousSettings other = settings_of(2, 1);
  other.nnodes = 4;
  disagree(other, "node 2 (host " + host_name() + ") was started with --nnodes 4", ") with --nnodes 3");
}

TEST_CASE_METHOD(AgreementTest, "Agreement: another --rdzv_id is noticed by all") {
  RendezvousSettings other = settings_of(2, 1);
  other.run_id = "other";
  disagree(other, "was started with --rdzv_id other", ") with --rdzv_id none");
}

TEST_CASE_METHOD(AgreementTest, "Agreement: another --max_restarts is noticed by all") {
  RendezvousSettings other = settings_of(2, 1);
  other.max_restarts = 2;
  disagree(other, "was started with --max_restarts 2", ") with --max_restarts 0");
}

TEST_CASE_METHOD(AgreementTest, "Agreement: the same --node_rank twice is noticed by all") {
  disagree(settings_of(1, 1), "--node_rank 1 is used twice: by host " + host_name(), ", and by host " + host_name());
}

TEST_CASE_METHOD(AgreementTest, "Agreement: node 0 twice on one machine is noticed by all") {
  const auto second = launcher(0, 1);
  nodes[0]->begin_round(0);
  nodes[1]->begin_round(0);
  run_for(50ms);
  second->begin_round(0);
  run_until([&] { return cannot_meet(*nodes[0]) && cannot_meet(*nodes[1]) && cannot_meet(*second); });
  for (const Rendezvous* node : std::vector<const Rendezvous*>{nodes[0].get(), nodes[1].get(), second.get()}) {
    CHECK(node->join_failure()->exit_status == 125);
    CHECK_THAT(node->join_failure()->text, ContainsSubstring("--node_rank 0 is used twice: by host " + host_name()));
  }
}

TEST_CASE_METHOD(AgreementTest, "Agreement: a node 0 that starts while the job runs is refused, and the job goes on") {
  meet();
  const auto second = launcher(0, 1);
  second->begin_round(0);
  run_until([&] { return cannot_meet(*second); });
  CHECK_THAT(second->join_failure()->text, ContainsSubstring("--node_rank 0 is used twice"));
  run_for(50ms);
  for (const auto& node : nodes) CHECK_FALSE(node->first_failure());
}

TEST_CASE_METHOD(AgreementTest, "Agreement: a launcher that an address leads back to itself is not its own rival") {
  const control::Hello own{.host = "here", .launcher = "one and the same", .nnodes = 2, .node_rank = 0};
  Coordinator coordinator(loop, messages,
                          {.host = own, .rendezvous_address = "here", .timeout = [] { return 1000ms; }});
  store::StoreServer store(loop, messages, {.port = static_cast<std::uint16_t>(port)});
  store.set(kControlPortKey, std::to_string(coordinator.port()));
  coordinator.begin_round(0, store);
  const auto member = [&](control::Hello hello, UniqueFd fd) {
    MemberOptions options{.hello = std::move(hello), .is_local = true};
    options.timeout = [] { return 1000ms; };
    auto node = std::make_unique<Member>(loop, messages, std::move(options), std::move(fd));
    node->begin_round(0);
    return node;
  };
  const auto itself = member(own, coordinator.connect_locally());
  std::vector<std::string> found;
  const auto note = [&](const JoinFailure& reason) { found.push_back(reason.text); };
  const DuplicateCoordinator duplicate(loop, messages, {"127.0.0.1", static_cast<std::uint16_t>(port), own}, note);
  run_for(300ms);
  CHECK(found.empty());
  CHECK_FALSE(itself->join_failure());
  const control::Hello another{.host = "there", .launcher = "another", .nnodes = 2, .node_rank = 0};
  const DuplicateCoordinator real(loop, messages, {"127.0.0.1", static_cast<std::uint16_t>(port), another}, note);
  run_until([&] { return !found.empty() && itself->join_failure(); });
  CHECK_THAT(found.front(), ContainsSubstring("--node_rank 0 is used twice"));
}

TEST_CASE_METHOD(AgreementTest, "Agreement: what keeps a node from starting is told to all, whichever node it is") {
  for (const int troubled : {0, 2}) {
    RendezvousSettings settings = settings_of(troubled, 1);
    settings.start_failure = JoinFailure{"there is no such program", 127};
    nodes[static_cast<std::size_t>(troubled)] = launcher(settings);
    begin(0);
    run_until_all(cannot_meet);
    for (const auto& node : nodes) {
      CHECK(node->join_failure()->exit_status == 127);
      CHECK_THAT(node->join_failure()->text, ContainsSubstring("node " + std::to_string(troubled) + " (host ") &&
                                                 ContainsSubstring("could not start: there is no such program"));
    }
    run_until_all(has_left);
    nodes.clear();
    for (int node = 0; node < nnodes; ++node) nodes.push_back(launcher(node, 1));
  }
}

TEST_CASE_METHOD(AgreementTest, "Agreement: who comes when the job runs is refused, and the job goes on") {
  meet();
  const auto late = launcher(1, 1);
  late->begin_round(0);
  run_until([&] { return late->join_failure().has_value(); });
  CHECK_THAT(late->join_failure()->text, ContainsSubstring("--node_rank 1 is used twice"));
  run_for(50ms);
  for (const auto& node : nodes) CHECK_FALSE(node->first_failure());
}

class SecretTest : protected LaunchersInOneLoop {
 protected:
  SecretTest() {
    if (!control::has_secrets()) SKIP("this ddprun was built without libsodium");
  }
  std::unique_ptr<Rendezvous> launcher_with(int node, const std::string& secret) {
    RendezvousSettings settings = settings_of(node, 1);
    if (!secret.empty()) {
      std::ofstream(folder.path() / "secret") << secret << "\n";
      settings.secret = control::Secret::read((folder.path() / "secret").string());
    }
    return launcher(std::move(settings));
  }
  // Node 0 and 2 know one secret, node 1 what is given.
  void begin_with(const std::string& of_node_1) {
    nodes[0] = launcher_with(0, "a secret of many bytes");
    nodes[1] = launcher_with(1, of_node_1);
    nodes[2] = launcher_with(2, "a secret of many bytes");
    begin(0);
  }
  // Who does not know the secret is refused, and the job waits on.
  void require_refusal(const std::string& text) {
    run_until([&] { return nodes[1]->join_failure().has_value(); });
    CHECK(nodes[1]->join_failure()->exit_status == 125);
    CHECK_THAT(nodes[1]->join_failure()->text, ContainsSubstring(text));
    run_for(50ms);
    CHECK_FALSE(nodes[0]->join_failure());
    nodes[1] = launcher_with(1, "a secret of many bytes");
    nodes[1]->begin_round(0);
    run_until_all(has_met);
  }
  ddp::test::TemporaryFolder folder;
};

TEST_CASE_METHOD(SecretTest, "Secret: those who know it meet") {
  begin_with("a secret of many bytes");
  run_until_all(has_met);
}

TEST_CASE_METHOD(SecretTest, "Secret: another one is refused, and the job waits for the right node") {
  begin_with("another secret of many bytes");
  require_refusal("has another --rdzv_secret_file");
}

TEST_CASE_METHOD(SecretTest, "Secret: none is refused, and the job waits for the right node") {
  begin_with("");
  require_refusal("has no --rdzv_secret_file");
}

TEST_CASE_METHOD(SecretTest, "Secret: a node does not join a job that has none") {
  nodes[1] = launcher_with(1, "a secret of many bytes");
  nodes[0]->begin_round(0);
  nodes[1]->begin_round(0);
  run_until([&] { return nodes[1]->join_failure().has_value(); });
  CHECK_THAT(nodes[1]->join_failure()->text, ContainsSubstring("was started without --rdzv_secret_file"));
}

TEST_CASE_METHOD(SecretTest, "Secret: a proof is good for its speaker and its challenges alone") {
  std::ofstream(folder.path() / "secret") << "a secret of many bytes";
  const auto secret = control::Secret::read((folder.path() / "secret").string());
  const control::Secret::Claim claim{control::kNodeRole, "1", "2", "session", 7};
  const std::string proof = secret.proof(claim);
  CHECK(secret.is_valid_proof(proof, claim));
  CHECK_FALSE(secret.is_valid_proof(proof, {control::kCoordinatorRole, "1", "2", "session", 7}));
  CHECK_FALSE(secret.is_valid_proof(proof, {control::kNodeRole, "2", "1", "session", 7}));
  CHECK_FALSE(secret.is_valid_proof(proof, {control::kNodeRole, "1", "2", "another", 7}));
  CHECK_FALSE(secret.is_valid_proof(proof, {control::kNodeRole, "1", "2", "session", 8}));
  CHECK_FALSE(secret.is_valid_proof(proof, {control::kNodeRole, "", "12", "session", 7}));
  CHECK_FALSE(secret.is_valid_proof("", claim));
  CHECK(control::new_challenge() != control::new_challenge());
  std::ofstream(folder.path() / "secret") << "short";
  CHECK_THROWS_AS(control::Secret::read((folder.path() / "secret").string()), LaunchError);
  CHECK_THROWS_AS(control::Secret::read((folder.path() / "no-such").string()), LaunchError);
}

class ArrivalTest : protected LaunchersInOneLoop {
 protected:
  ArrivalTest() : LaunchersInOneLoop(3, "c10d") {}
};

TEST_CASE_METHOD(ArrivalTest,
                 "EndpointRendezvous: nodes are numbered as they arrive, and one of them hosts the store") {
  for (const std::size_t node : {2U, 0U, 1U}) {
    nodes[node]->begin_round(0);
    run_for(50ms);
  }
  run_until_all(has_met);
  CHECK(nodes[2]->info()->place.group_rank == 0);
  CHECK(nodes[0]->info()->place.group_rank == 1);
  CHECK(nodes[1]->info()->place.group_rank == 2);
  CHECK(nodes[1]->info()->place.ranks.first_rank == 4);  // behind 3 and 1
  CHECK(nodes[2]->store() != nullptr);
  CHECK(nodes[0]->store() == nullptr);
}

TEST_CASE_METHOD(ArrivalTest, "EndpointRendezvous: meets at an address that no node has yet until the time is over") {
  RendezvousSettings settings = settings_of(0, 1);
  settings.master_addr = "192.0.2.1";
  settings.join_timeout = 300ms;
  const auto node = launcher(settings);
  node->begin_round(0);
  run_until([&] { return node->join_failure().has_value(); });
  CHECK(node->join_failure()->exit_status == 124);
}

TEST_CASE_METHOD(ArrivalTest, "EndpointRendezvous: nodes that meet by other means are refused") {
  nodes[0]->begin_round(0);
  const auto given = find_rendezvous(options(3))->make(loop, messages, settings_of(1, 1));
  given->begin_round(0);
  run_until([&] { return nodes[0]->join_failure() && given->join_failure(); });
  CHECK_THAT(given->join_failure()->text,
             ContainsSubstring("was started with --rdzv_backend static") && ContainsSubstring("--rdzv_backend c10d"));
}

class ManyNodesTest : protected LaunchersInOneLoop {
 protected:
  ManyNodesTest() : LaunchersInOneLoop(64) {}
};

TEST_CASE_METHOD(ManyNodesTest, "Rendezvous: 64 nodes meet soon, also when node 0 comes last") {
  for (std::size_t node = 1; node < nodes.size(); ++node) nodes[node]->begin_round(0);
  run_for(100ms);
  const auto begin = Clock::now();
  nodes[0]->begin_round(0);
  run_until_all(has_met);
  CHECK(Clock::now() - begin < 2s);  // 200 ms on a quiet machine, for launchers that are alone in their processes
}

}  // namespace
}  // namespace launcher
