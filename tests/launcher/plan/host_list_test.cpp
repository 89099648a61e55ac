#include "launcher/plan/host_list.h"

#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/options.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Hosts = std::vector<HostSlots>;

TEST_CASE("HostList: has hosts and their slots") {
  CHECK(parse_host_list("localhost:4") == Hosts{{"localhost", 4}});
  CHECK(parse_host_list("a:4,b,a:2") == Hosts{{"a", 6}, {"b", 0}});
  CHECK(parse_host_list("a,a") == Hosts{{"a", 2}});
  CHECK(parse_host_list("me@a:2,me@[::1]:4") == Hosts{{"me@a", 2}, {"me@::1", 4}});
  CHECK(parse_host_list("[::1]:3,[fe80::1]") == Hosts{{"::1", 3}, {"fe80::1", 0}});
}

TEST_CASE("HostList: what is no list is refused") {
  for (const char* text : {"",
                           ",",
                           "a,",
                           "a:",
                           "a:0",
                           "a:-1",
                           "a:x",
                           "a:2:3",
                           ":2",
                           "[::1",
                           "[]:2",
                           "[::1]2",
                           "a:99999999999",
                           "a:65537",
                           "-oProxyCommand=x",
                           "-l@a",
                           "@a",
                           "a@",
                           "a b",
                           "a\nb"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_host_list(text), LaunchError);
  }
}

TEST_CASE("HostList: this machine has several names") {
  for (const char* name : {"localhost", "LOCALHOST", "127.0.0.1", "::1", "node7", "Node7", "node7.cluster"}) {
    CAPTURE(name);
    CHECK(is_this_machine(name, "node7.cluster"));
  }
  CHECK(is_this_machine("node7.cluster", "node7"));
  for (const char* other : {"node7.other", "node", "node77", "node7x.cluster", "cluster", "127.0.0.2", "::2"}) {
    CAPTURE(other);
    CHECK_FALSE(is_this_machine(other, "node7.cluster"));
  }
}

TEST_CASE("HostList: so many slots that they cannot be counted are the most there can be") {
  CHECK(parse_host_list("a:65536,a:65536") == Hosts{{"a", Options::kMaxLocalRanks}});
}

}  // namespace
}  // namespace launcher
