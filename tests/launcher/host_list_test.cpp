#include "launcher/plan/host_list.h"

#include <gtest/gtest.h>

#include "launcher/system/launch_error.h"

namespace launcher {
namespace {

using Hosts = std::vector<HostSlots>;

TEST(HostList, HostsAndTheirSlots) {
  EXPECT_EQ(parse_host_list("localhost:4"), (Hosts{{"localhost", 4}}));
  EXPECT_EQ(parse_host_list("a:4,b,a:2"), (Hosts{{"a", 6}, {"b", 1}}));
  EXPECT_EQ(parse_host_list("[::1]:3,[fe80::1]"), (Hosts{{"::1", 3}, {"fe80::1", 1}}));
}

TEST(HostList, WhatIsNoListIsRefused) {
  for (const char* text : {"", ",", "a,", "a:", "a:0", "a:-1", "a:x", "a:2:3", ":2", "[::1", "[]:2", "[::1]2",
                           "a:99999999999", "a:65537"}) {
    EXPECT_THROW(parse_host_list(text), LaunchError) << text;
  }
}

TEST(HostList, ThisMachineHasSeveralNames) {
  const Hosts hosts = parse_host_list("localhost:1,127.0.0.1:2,[::1]:3,node7:4,node7.cluster:5");
  EXPECT_EQ(local_slots(hosts, "node7.cluster"), 15);
}

TEST(HostList, AnotherHostIsNamed) {
  try {
    local_slots(parse_host_list("localhost:1,node8:2"), "node7");
    FAIL();
  } catch (const LaunchError& error) {
    EXPECT_NE(std::string(error.what()).find("node8 is not this machine (node7)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace launcher
