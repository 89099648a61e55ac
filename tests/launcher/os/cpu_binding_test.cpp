#include "launcher/os/machine/cpu_binding.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using Catch::Matchers::IsEmpty;
using ddp::test::ElementsAre;

// Two nodes of `cores` cores with two hyperthreads each, numbered as Linux does: all first threads, then all second.
std::vector<Cpu> machine(int cores) {
  std::vector<Cpu> cpus;
  for (int number = 0; number < 4 * cores; ++number) {
    const int core = number % (2 * cores);
    cpus.push_back({.number = number, .core = core, .node = core / cores});
  }
  return cpus;
}

TEST_CASE("BindToCores: shares are contiguous and have both threads of a core") {
  const auto bindings = bind_to_cores(machine(4), 4);
  CHECK_THAT(bindings[0].cpus, ElementsAre(0, 1, 8, 9));
  CHECK_THAT(bindings[3].cpus, ElementsAre(6, 7, 14, 15));
}

TEST_CASE("BindToCores: each CPU belongs to one rank, and shares differ by one core at most") {
  const int ranks = GENERATE(range(1, 17));
  CAPTURE(ranks);
  const auto bindings = bind_to_cores(machine(4), ranks);
  std::multiset<int> all;
  std::size_t fewest = 16;
  std::size_t most = 0;
  for (const auto& binding : bindings) {
    all.insert(binding.cpus.begin(), binding.cpus.end());
    fewest = std::min(fewest, binding.cpus.size());
    most = std::max(most, binding.cpus.size());
    CHECK(std::is_sorted(binding.cpus.begin(), binding.cpus.end()));
    CHECK_FALSE(binding.memory_node);
  }
  CHECK(all.size() == 16U);
  CHECK(std::set<int>(all.begin(), all.end()).size() == 16U);
  CHECK(most - fewest <= 2U);
}

TEST_CASE("BindToCores: more ranks than CPUs share them") {
  const auto bindings = bind_to_cores({{.number = 3, .core = 3}, {.number = 7, .core = 7}}, 5);
  for (const auto& binding : bindings) CHECK(binding.cpus.size() == 1U);
  CHECK_THAT(bindings[0].cpus, ElementsAre(3));
  CHECK_THAT(bindings[4].cpus, ElementsAre(7));
}

TEST_CASE("BindToNodes: each node has a contiguous block of ranks") {
  const auto bindings = bind_to_nodes(machine(2), std::vector<std::optional<int>>(4));
  CHECK_THAT(bindings[0].cpus, ElementsAre(0, 1, 4, 5));
  CHECK(bindings[1].memory_node == 0);
  CHECK_THAT(bindings[2].cpus, ElementsAre(2, 3, 6, 7));
  CHECK(bindings[3].memory_node == 1);
}

TEST_CASE("BindToNodes: a rank is bound to its GPU's node where that is known and usable") {
  const auto bindings = bind_to_nodes(machine(2), {1, std::nullopt, 0, 5});
  CHECK(bindings[0].memory_node == 1);
  CHECK(bindings[1].memory_node == 0);
  CHECK(bindings[2].memory_node == 0);
  INFO("node 5 has no CPU for us");
  CHECK(bindings[3].memory_node == 1);
}

TEST_CASE("CpuList: is read and written") {
  CHECK_THAT(parse_cpu_list("0-3,8\n"), ElementsAre(0, 1, 2, 3, 8));
  CHECK_THAT(parse_cpu_list(""), IsEmpty());
  CHECK_THAT(parse_cpu_list("x,3-x,2,-1,99999999999"), ElementsAre(2));
  CHECK_THAT(parse_cpu_list("5-3"), IsEmpty());
  CHECK(to_cpu_list({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  CHECK(to_cpu_list({}) == "");
}

}  // namespace
}  // namespace launcher
