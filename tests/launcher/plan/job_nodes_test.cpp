#include "launcher/plan/job_nodes.h"

#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Hosts = std::vector<HostSlots>;
using Strings = std::vector<std::string>;

bool is_here(const std::string& host) {
  return host == "here" || host == "localhost";
}

std::vector<JobNode> nodes(const std::string& hosts, int ranks = Options::kUnset, bool counts_all = false) {
  Options options;
  options.nproc_per_node = ranks;
  options.counts_all_ranks = counts_all;
  return plan_nodes(parse_host_list(hosts), options, is_here);
}

TEST_CASE("JobNodes: all slots are taken unless -n says else") {
  CHECK(nodes("a:2,b") == std::vector<JobNode>{{"a", false, 2}, {"b", false, 1}});
}

TEST_CASE("JobNodes: this machine is one node, whatever it is called") {
  CHECK(nodes("here:2,b:1,localhost:3") == std::vector<JobNode>{{"here", true, 5}, {"b", false, 1}});
}

TEST_CASE("JobNodes: -n counts all ranks and fills one host after the other") {
  CHECK(nodes("a:2,b:2,c:2", 3, true) == std::vector<JobNode>{{"a", false, 2}, {"b", false, 1}});
  CHECK_THROWS_AS(nodes("a:2,b", 4, true), LaunchError);
}

TEST_CASE("JobNodes: --nproc_per_node counts those of each host") {
  CHECK(nodes("a,b:4", 3) == std::vector<JobNode>{{"a", false, 3}, {"b", false, 3}});
  CHECK_THROWS_AS(nodes("a:2,b:4", 3), LaunchError);
}

TEST_CASE("JobNodes: a host counts its GPUs itself") {
  CHECK(nodes("a:2,b", Options::kOnePerGpu, true) ==
        std::vector<JobNode>{{"a", false, Options::kOnePerGpu}, {"b", false, Options::kOnePerGpu}});
}

const Hosts kCluster = {{"a", 4}, {"b", 2}, {"me@c", 1}};

TEST_CASE("HostSelection: --include keeps hosts, and GPUs of hosts") {
  CHECK(select_hosts(kCluster, "b", "") == Hosts{{"b", 2}});
  CHECK(select_hosts(kCluster, "b@a:2,0", "") == Hosts{{"a", 2, {"0", "2"}}, {"b", 2}});
  CHECK(select_hosts(kCluster, "a@me@c:0", "") == Hosts{{"a", 4}, {"me@c", 1, {"0"}}});
}

TEST_CASE("HostSelection: --exclude drops hosts, and GPUs of hosts") {
  CHECK(select_hosts(kCluster, "", "b") == Hosts{{"a", 4}, {"me@c", 1}});
  CHECK(select_hosts(kCluster, "", "a:1@b:0,1") == Hosts{{"a", 3, {"0", "2", "3"}}, {"me@c", 1}});
  CHECK(select_hosts(kCluster, "", "") == kCluster);
}

TEST_CASE("HostSelection: what is not there is refused") {
  for (const char* text : {"d", "a@d", "a:4", "a:", "a:x", "a:-1", "@", "a@", "me", "me@d", "b:0@me"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(select_hosts(kCluster, text, ""), LaunchError);
    CHECK_THROWS_AS(select_hosts(kCluster, "", text), LaunchError);
  }
  CHECK_THROWS_AS(select_hosts(kCluster, "", "a@b@me@c"), LaunchError);
}

}  // namespace
}  // namespace launcher
