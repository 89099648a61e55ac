#include <string>

#include "tests/support/catch.h"
#include "timeline/what_if.h"

namespace ddp::timelines {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("WhatIf: what is given is read, and what is left out has defaults") {
  const Scenario all = parse_what_if(
      "ranks=1024,hosts=128,bandwidth=400Gbit,latency=5us,local_bandwidth=300GB,local_latency=1.5us,algorithm="
      "hierarchical");
  CHECK(all.placement.ranks == 1024);
  CHECK(all.placement.ranks_per_host() == 8);
  CHECK(all.network.between.bandwidth == 5e10);
  CHECK(all.network.between.latency == 5e3);
  CHECK(all.network.within.bandwidth == 3e11);
  CHECK(all.network.within.latency == 1.5e3);
  CHECK(all.algorithm == Algorithm::kHierarchical);
  const Scenario least = parse_what_if("latency=0s,bandwidth=12.5MB,ranks=6");
  CHECK(least.placement.hosts == 6);
  CHECK(least.network.within.bandwidth == 12.5e6);
  CHECK(!least.algorithm);
}

std::string refused(const std::string& text) {
  try {
    parse_what_if(text);
  } catch (const WhatIfError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("WhatIf: what cannot be meant is refused with what was expected and got") {
  const std::string rest = ",bandwidth=1Gbit,latency=5us";
  CHECK(refused("") ==
        "expected KEY=VALUE, KEY being one of ranks, hosts, bandwidth, latency, local_bandwidth, local_latency, "
        "algorithm, got \"\"");
  CHECK_THAT(refused("ranks"), ContainsSubstring("got \"ranks\""));
  CHECK_THAT(refused("nodes=3"), ContainsSubstring("got \"nodes=3\""));
  CHECK_THAT(refused("ranks=4" + rest + ","), ContainsSubstring("got \"\""));
  CHECK(refused("ranks=4,latency=5us") == "expected a value for bandwidth, got \"ranks=4,latency=5us\"");
  CHECK_THAT(refused("ranks=4,ranks=5" + rest), ContainsSubstring("ranks: expected one value"));
  for (const std::string ranks : {"0", "-1", "4x", "1048577", "", "99999999999999999999"}) {
    CHECK(refused("ranks=" + ranks + rest) == "ranks: expected a whole number in 1 .. 1048576, got \"" + ranks + "\"");
  }
  CHECK_THAT(refused("ranks=4,hosts=3" + rest), ContainsSubstring("hosts: expected a divisor of the 4 ranks"));
  for (const std::string value : {"400", "Gbit", "0Gbit", "-1Gbit", "nanGbit", "infGbit", "1e999Gbit", "1 Gbit",
                                  "1gbit", "", "1e-300Gbit", "0.999kbit", "1001Tbit", "1e300GB"}) {
    for (const std::string key : {"bandwidth", "local_bandwidth"}) {
      const std::string between = key == "bandwidth" ? "" : "bandwidth=1Gbit,";
      CHECK(refused("ranks=4,latency=5us," + between + key + "=" + value) ==
            key + ": expected a number with kbit, Mbit, Gbit, Tbit, kB, MB or GB, in 1kbit .. 1000Tbit, got \"" +
                value + "\"");
    }
  }
  for (const std::string value : {"-1us", "5", "10.1s", "1e9s", "nanus"}) {
    CHECK(refused("ranks=4,bandwidth=1GB,latency=" + value) ==
          "latency: expected a number with ns, us, ms or s, in 0s .. 10s, got \"" + value + "\"");
  }
  CHECK(refused("ranks=4,algorithm=tree" + rest) == "algorithm: expected ring or hierarchical, got \"tree\"");
  CHECK_THAT(refused("ranks=\x1b[2J" + rest), !ContainsSubstring("\x1b"));
}

TEST_CASE("WhatIf: the limits themselves are accepted") {
  for (const std::string text : {"bandwidth=1kbit,latency=10s", "bandwidth=1000Tbit,latency=0ns",
                                 "bandwidth=125000GB,latency=10000ms", "bandwidth=0.125kB,latency=0s"}) {
    CAPTURE(text);
    CHECK(refused("ranks=4," + text).empty());
  }
}

TEST_CASE("WhatIf: a wrong value is reported before a missing key") {
  CHECK(refused("ranks=") == "ranks: expected a whole number in 1 .. 1048576, got \"\"");
  CHECK_THAT(refused("ranks=4,latency="), ContainsSubstring("latency: expected a number"));
  CHECK_THAT(refused("hosts=x,ranks=4"), ContainsSubstring("hosts: expected a whole number"));
  CHECK_THAT(refused("algorithm="), ContainsSubstring("algorithm: expected ring or hierarchical"));
  CHECK(refused("hosts=2,bandwidth=1Gbit,latency=5us") ==
        "expected a value for ranks, got \"hosts=2,bandwidth=1Gbit,latency=5us\"");
}

TEST_CASE("WhatIf: a long value is quoted in part") {
  const std::string many(100'000, 'x');
  for (const std::string& text :
       {many, "ranks=" + many, "ranks=1" + std::string(100'000, '0') + ",bandwidth=1Gbit,latency=5us",
        "ranks=4,bandwidth=1Gbit,latency=" + many, "ranks=4,algorithm=" + many, "hosts=2,hosts=" + many}) {
    const std::string message = refused(text);
    CHECK(message.size() < 300);
    CHECK(message.ends_with("...\""));
  }
}

}  // namespace
}  // namespace ddp::timelines
