#include <chrono>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/host_list.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Hosts = std::vector<HostSlots>;

TEST_CASE("HostFile: mpirun's, horovodrun's, deepspeed's and hydra's lines are read") {
  CHECK(parse_host_file("# all\n\na slots=4 max_slots=8\nb   slots=2\t# two\r\n  c:3\nd\nme@e max-slots=2 slots=1\n",
                        "f") == Hosts{{"a", 4}, {"b", 2}, {"c", 3}, {"d", 0}, {"me@e", 1}});
}

TEST_CASE("HostFile: a hundred thousand hosts are read in a moment") {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "node" + std::to_string(i) + " slots=8\n";
  const auto start = std::chrono::steady_clock::now();
  CHECK(parse_host_file(text, "f").size() == 100'000);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));  // a pairwise search took 20
}

TEST_CASE("HostFile: an IPv6 address stands with and without brackets") {
  CHECK(parse_host_file("fe80::1 slots=2\n[::2]:3\nme@fd00::3\n", "f") ==
        Hosts{{"fe80::1", 2}, {"::2", 3}, {"me@fd00::3", 0}});
}

TEST_CASE("HostFile: slots of one host add up") {
  CHECK(parse_host_file("a slots=1\nb\na slots=2", "f") == Hosts{{"a", 3}, {"b", 0}});
}

TEST_CASE("HostFile: a line that is none is named") {
  for (const char* line :
       {"a slots=", "a slots=x", "a slots=0", "a b", "a slots=4 max_slots=2", "a cpus=4", "-x", "a:b"}) {
    CAPTURE(line);
    CHECK_THROWS_MATCHES(parse_host_file("ok\n" + std::string(line), "hosts"), LaunchError,
                         MessageMatches(ContainsSubstring("--hostfile hosts, line 2: ")));
  }
}

TEST_CASE("HostFile: a file without a host, and one that is not there, are refused") {
  CHECK_THROWS_AS(parse_host_file("# nothing\n", "f"), LaunchError);
  CHECK_THROWS_MATCHES(read_host_file("/no/such/file"), LaunchError, MessageMatches(ContainsSubstring("No such file")));
  CHECK_THROWS_AS(read_host_file("/"), LaunchError);
}

}  // namespace
}  // namespace launcher
