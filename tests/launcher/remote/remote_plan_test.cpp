#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/remote/host_connections.h"
#include "launcher/remote/job_plan.h"
#include "tests/support/catch.h"

namespace launcher::remote {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Strings = std::vector<std::string>;

std::vector<NamedHost> hosts(std::uint32_t count) {
  std::vector<NamedHost> found;
  for (std::uint32_t i = 0; i < count; ++i) found.push_back({i, "h" + std::to_string(i), false});
  return found;
}

// How far the last of `count` hosts is away, when each connects to `fanout`.
std::size_t depth(const std::vector<NamedHost>& below, std::size_t fanout, std::set<std::uint32_t>& reached) {
  std::size_t deepest = 0;
  const auto found = branches(below, fanout);
  CHECK(found.size() <= fanout);
  for (const auto& branch : found) {
    CHECK(reached.insert(branch.front().number).second);
    deepest = std::max(deepest, 1 + depth({branch.begin() + 1, branch.end()}, fanout, reached));
  }
  return deepest;
}

TEST_CASE("Tree: every host is reached once, by few connections from each") {
  for (const auto& [count, fanout, most] : {std::tuple{1U, 16U, 1U},
                                            {16U, 16U, 1U},
                                            {17U, 16U, 2U},
                                            {272U, 16U, 2U},
                                            {5000U, 16U, 4U},
                                            {9U, 1U, 9U},
                                            {0U, 4U, 0U}}) {
    CAPTURE(count, fanout);
    std::set<std::uint32_t> reached;
    CHECK(depth(hosts(count), fanout, reached) <= most);
    CHECK(reached.size() == count);
  }
}

TEST_CASE("Tree: this machine is nobody's way") {
  auto some = hosts(4);
  some[1].is_local = true;
  const auto found = branches(some, 1);
  REQUIRE(found.size() == 2);
  CHECK(found[0] == std::vector<NamedHost>{some[1]});
  CHECK(found[1].size() == 3);
}

TEST_CASE("TravellingEnvironment: all variables travel but those of a machine and a session") {
  const Strings own = {"PATH=/bin", "HOME=/root", "SSH_AUTH_SOCK=/x", "A=1=2", "TMPDIR=/t", "XDG_X=1", "B=\n\xff"};
  CHECK(forwarded_environment(own, {}) == Strings{"PATH=/bin", "A=1=2", "B=\n\xff"});
  const Strings exported = {"TMPDIR", "XDG_X=2"};
  CHECK(forwarded_environment(own, exported) == Strings{"PATH=/bin", "A=1=2", "TMPDIR=/t", "XDG_X=1", "B=\n\xff"});
}

TEST_CASE("TravellingEnvironment: what did not travel is the host's own") {
  const Strings of_host = {"HOME=/its/home", "PATH=/sbin", "NCCL_X=1"};
  CHECK(merged_environment(of_host, {"PATH=/bin", "A="}) == Strings{"PATH=/bin", "A=", "HOME=/its/home", "NCCL_X=1"});
}

TEST_CASE("JobPlan: a host gets the user's options but those of the hosts, and its own behind them") {
  CHECK(forwarded_arguments({"--hosts=a:1,b:1", "--grace=3", "--nproc_per_node=2", "-m", "--ssh_port=22", "--no_prefix",
                             "--master_port=1"}) == Strings{"--grace=3", "-m", "--no_prefix"});
  const std::vector<JobNode> nodes = {{"a", false, 2}, {"b", false, Options::kOnePerGpu, {"1", "3"}}};
  CHECK(node_arguments(nodes, 1, {"10.0.0.1", 4711, "id"}, {}).arguments ==
        Strings{"--nnodes=2", "--node_rank=1", "--nproc_per_node=gpu", "--rdzv_id=id", "--rdzv_backend=static",
                "--master_addr=10.0.0.1", "--master_port=4711", "--join_timeout=900.000000", "--gpus=1,3"});
  CHECK(node_arguments({nodes[0]}, 0, {"", 0, "id"}, {}).arguments ==
        Strings{"--nnodes=1", "--node_rank=0", "--nproc_per_node=2", "--rdzv_id=id", "--rdzv_backend=static"});
}

TEST_CASE("JobPlan: standard input goes to the host that has the rank") {
  const std::vector<JobNode> nodes = {{"a", false, 2}, {"b", false, 3}};
  using To = StandardInput::To;
  using Numbers = std::vector<std::uint32_t>;
  CHECK(input_nodes(nodes, {To::kRank, 1}) == Numbers{0});
  CHECK(input_nodes(nodes, {To::kRank, 2}) == Numbers{1});
  CHECK(input_nodes(nodes, {To::kAll, 0}) == Numbers{0, 1});
  CHECK(input_nodes(nodes, {To::kNone, 0}).empty());
  CHECK_THROWS_AS(input_nodes(nodes, {To::kRank, 5}), LaunchError);
  const std::vector<JobNode> counting = {{"a", false, Options::kOnePerGpu}};
  CHECK(input_nodes(counting, {To::kRank, 0}) == Numbers{0});
  CHECK_THROWS_AS(input_nodes(counting, {To::kRank, 1}), LaunchError);
}

struct Meet {
  std::vector<JobNode> nodes;
  std::map<std::uint32_t, Hello> hellos;
  std::string at() const {
    return rendezvous_host(nodes, hellos, "me", [](const std::string& address) { return address == "10.0.0.9"; });
  }
};
Hello called(const char* connection) {
  return {.connection = connection};
}

TEST_CASE("JobPlan: the nodes meet at the address by which ssh has reached node 0") {
  CHECK(Meet{{{"me@a"}, {"b"}}, {{0, called("10.0.0.9 5 10.0.0.1 22")}, {1, called("10.0.0.9 5 10.0.0.2 22")}}}.at() ==
        "10.0.0.1");
  CHECK(Meet{{{"me@a"}, {"b"}}, {{0, called("")}, {1, called("")}}}.at() == "a");
}

TEST_CASE("JobPlan: where node 0 is this machine, the nodes meet at the address that the others see") {
  const Meet meet{{{"localhost", true}, {"b"}}, {{0, called("")}, {1, called("10.0.0.9 5 10.0.0.2 22")}}};
  CHECK(meet.at() == "10.0.0.9");
  const Meet by_ssh{{{"me@127.0.0.1"}, {"b"}},
                    {{0, called("127.0.0.1 5 127.0.0.1 22")}, {1, called("10.0.0.9 5 10.0.0.2 22")}}};
  CHECK(by_ssh.at() == "10.0.0.9");
  const Meet behind_nat{{{"localhost", true}, {"b"}}, {{0, called("")}, {1, called("1.2.3.4 5 10.0.0.2 22")}}};
  CHECK_THROWS_MATCHES(behind_nat.at(), LaunchError, MessageMatches(ContainsSubstring("--master_addr")));
  CHECK(Meet{{{"localhost", true}, {"b"}}, {{0, called("")}, {1, called("")}}}.at() == "me");
}

TEST_CASE("JobPlan: output under way is bounded, however many hosts there are") {
  CHECK(output_window(1) == 256U << 10);
  CHECK(output_window(1000) * 1000 <= 64U << 20);
  CHECK(output_window(100'000) == 16U << 10);
}

}  // namespace
}  // namespace launcher::remote
