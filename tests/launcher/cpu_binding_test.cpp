#include "launcher/machine/cpu_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two nodes of `cores` cores with two hyperthreads each, numbered as Linux does: all first threads, then all second.
std::vector<Cpu> machine(int cores) {
  std::vector<Cpu> cpus;
  for (int number = 0; number < 4 * cores; ++number) {
    const int core = number % (2 * cores);
    cpus.push_back({.number = number, .core = core, .node = core / cores});
  }
  return cpus;
}

TEST(BindToCores, ContiguousSharesWithBothThreadsOfACore) {
  const auto bindings = bind_to_cores(machine(4), 4);
  EXPECT_THAT(bindings[0].cpus, ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(bindings[3].cpus, ElementsAre(6, 7, 14, 15));
}

TEST(BindToCores, EachCpuBelongsToOneRankAndSharesDifferByOneCoreAtMost) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const auto bindings = bind_to_cores(machine(4), ranks);
    std::multiset<int> all;
    std::size_t fewest = 16;
    std::size_t most = 0;
    for (const auto& binding : bindings) {
      all.insert(binding.cpus.begin(), binding.cpus.end());
      fewest = std::min(fewest, binding.cpus.size());
      most = std::max(most, binding.cpus.size());
      EXPECT_TRUE(std::is_sorted(binding.cpus.begin(), binding.cpus.end()));
      EXPECT_FALSE(binding.memory_node);
    }
    EXPECT_EQ(all.size(), 16U) << ranks;
    EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), 16U) << ranks;
    EXPECT_LE(most - fewest, 2U) << ranks;
  }
}

TEST(BindToCores, MoreRanksThanCpusShareThem) {
  const auto bindings = bind_to_cores({{.number = 3, .core = 3}, {.number = 7, .core = 7}}, 5);
  for (const auto& binding : bindings) EXPECT_EQ(binding.cpus.size(), 1U);
  EXPECT_THAT(bindings[0].cpus, ElementsAre(3));
  EXPECT_THAT(bindings[4].cpus, ElementsAre(7));
}

TEST(BindToNodes, ContiguousBlocksOfRanksPerNode) {
  const auto bindings = bind_to_nodes(machine(2), std::vector<std::optional<int>>(4));
  EXPECT_THAT(bindings[0].cpus, ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(bindings[1].memory_node, 0);
  EXPECT_THAT(bindings[2].cpus, ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(bindings[3].memory_node, 1);
}

TEST(BindToNodes, TheGpusNodeWhereItIsKnownAndUsable) {
  const auto bindings = bind_to_nodes(machine(2), {1, std::nullopt, 0, 5});
  EXPECT_EQ(bindings[0].memory_node, 1);
  EXPECT_EQ(bindings[1].memory_node, 0);
  EXPECT_EQ(bindings[2].memory_node, 0);
  EXPECT_EQ(bindings[3].memory_node, 1) << "node 5 has no CPU for us";
}

TEST(CpuList, BothWays) {
  EXPECT_THAT(parse_cpu_list("0-3,8\n"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("x,3-x,2,-1,99999999999"), ElementsAre(2));
  EXPECT_THAT(parse_cpu_list("5-3"), IsEmpty());
  EXPECT_EQ(to_cpu_list({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(to_cpu_list({}), "");
}

}  // namespace
}  // namespace launcher
