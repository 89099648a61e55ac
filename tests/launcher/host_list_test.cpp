#include "launcher/plan/host_list.h"

#include <string>
#include <vector>

#include "launcher/plan/options.h"
#include "launcher/system/launch_error.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Hosts = std::vector<HostSlots>;

TEST_CASE("HostList: has hosts and their slots") {
  CHECK(parse_host_list("localhost:4") == Hosts{{"localhost", 4}});
  CHECK(parse_host_list("a:4,b,a:2") == Hosts{{"a", 6}, {"b", 1}});
  CHECK(parse_host_list("[::1]:3,[fe80::1]") == Hosts{{"::1", 3}, {"fe80::1", 1}});
}

TEST_CASE("HostList: what is no list is refused") {
  for (const char* text : {"", ",", "a,", "a:", "a:0", "a:-1", "a:x", "a:2:3", ":2", "[::1", "[]:2", "[::1]2",
                           "a:99999999999", "a:65537"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_host_list(text), LaunchError);
  }
}

TEST_CASE("HostList: this machine has several names") {
  const Hosts hosts = parse_host_list("localhost:1,127.0.0.1:2,[::1]:3,node7:4,node7.cluster:5");
  CHECK(local_slots(hosts, "node7.cluster") == 15);
}

TEST_CASE("HostList: a domain may be left out on either side, and case says nothing") {
  CHECK(local_slots(parse_host_list("node7.cluster:2,Node7:3,LOCALHOST"), "node7") == 6);
  CHECK(local_slots(parse_host_list("NODE7.Cluster:2"), "node7.cluster") == 2);
  for (const char* other : {"node7.other", "node", "node77", "node7x.cluster", "cluster", "127.0.0.2", "[::2]"}) {
    CAPTURE(other);
    CHECK_THROWS_AS(local_slots(parse_host_list(other), "node7.cluster"), LaunchError);
  }
}

TEST_CASE("HostList: so many slots that they cannot be counted are the most there can be") {
  CHECK(local_slots(parse_host_list("localhost:65536,localhost:65536,[::1]:65536"), "node7") ==
        Options::kMaxLocalRanks);
}

TEST_CASE("HostList: another machine is named in the error") {
  CHECK_THROWS_MATCHES(local_slots(parse_host_list("localhost:1,node8:2"), "node7"), LaunchError,
                       MessageMatches(ContainsSubstring("node8 is not this machine (node7)")));
}

}  // namespace
}  // namespace launcher
