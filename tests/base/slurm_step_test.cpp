#include "base/schedulers/slurm_step.h"

#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Variables = std::map<std::string, std::string>;

VariableLookup lookup_in(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// What srun of Slurm 22.05 told the fourth of four tasks on two nodes.
Variables fourth_task(const Variables& changes = {}) {
  Variables variables{{"SLURM_JOB_ID", "2"},
                      {"SLURM_JOB_NODELIST", "n[01-02]"},
                      {"SLURM_JOB_NUM_NODES", "2"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_NTASKS", "4"},
                      {"SLURM_PROCID", "3"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NODELIST", "n[01-02]"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

TEST_CASE("SlurmStep: is what srun tells its tasks") {
  const auto step = slurm_step(lookup_in(fourth_task()));
  REQUIRE(step);
  CHECK(step->nodes == 2);
  CHECK(step->node == 1);
  CHECK(step->tasks_on_node == 2);
  CHECK(step->first_host == "n01");
  CHECK(step->port == 15002);
  CHECK(step->name == "2.0");
}

TEST_CASE("SlurmStep: a step of a part of the allocation meets on its own first node") {
  const auto step = slurm_step(lookup_in(fourth_task({{"SLURM_STEP_NODELIST", "n02"},
                                                      {"SLURM_STEP_NUM_NODES", "1"},
                                                      {"SLURM_NODEID", "0"},
                                                      {"SLURM_STEP_TASKS_PER_NODE", "4"}})));
  REQUIRE(step);
  CHECK(step->first_host == "n02");
  CHECK(step->tasks_on_node == 4);
}

TEST_CASE("SlurmStep: neither a batch script nor a shell of salloc is a task") {
  Variables batch = fourth_task();
  batch.erase("SLURM_STEP_ID");
  CHECK_FALSE(slurm_step(lookup_in(batch)));
  CHECK_FALSE(slurm_step(lookup_in({})));
  UNSCOPED_INFO("LaunchParameters=use_interactive_step");
  CHECK_FALSE(slurm_step(lookup_in(fourth_task({{"SLURM_STEP_ID", "4294967290"}}))));
}

TEST_CASE("SlurmStep: jobs, their steps and their restarts meet at different ports, below those of the kernel") {
  std::set<int> ports;
  int count = 0;
  for (const char* job : {"1234567", "1234568", "1234569"}) {
    for (const char* step : {"0", "1", "2"}) {
      for (const char* restart : {"0", "1", "2"}) {
        const auto told = slurm_step(
            lookup_in(fourth_task({{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}, {"SLURM_RESTART_COUNT", restart}})));
        REQUIRE(told);
        CHECK(told->port >= 15000);
        CHECK(told->port < 25000);
        ports.insert(told->port);
        ++count;
      }
    }
  }
  CHECK(static_cast<int>(ports.size()) == count);
}

TEST_CASE("SlurmStep: names what is missing or cannot be right") {
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_STEP_NUM_NODES", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"}) {
    Variables rest = fourth_task();
    rest.erase(name);
    CAPTURE(name);
    CHECK_THROWS_MATCHES(slurm_step(lookup_in(rest)), std::invalid_argument, MessageMatches(ContainsSubstring(name)));
    for (const char* value : {"", "[", ",", "n[3-1]"}) {
      CAPTURE(value);
      CHECK_THROWS_MATCHES(slurm_step(lookup_in(fourth_task({{name, value}}))), std::invalid_argument,
                           MessageMatches(ContainsSubstring(name)));
    }
    if (name == std::string("SLURM_STEP_NODELIST")) continue;  // any other text is a host's name
    for (const char* value : {"-1", "99999999999999999999", "\xff", "2(x", "1.0", " 1"}) {
      CAPTURE(value);
      CHECK_THROWS_MATCHES(slurm_step(lookup_in(fourth_task({{name, value}}))), std::invalid_argument,
                           MessageMatches(ContainsSubstring(name)));
    }
  }
  CHECK_THROWS_MATCHES(slurm_step(lookup_in(fourth_task({{"SLURM_NODEID", "2"}}))), std::invalid_argument,
                       MessageMatches(ContainsSubstring("SLURM_NODEID=2 but SLURM_STEP_NUM_NODES=2")));
}

}  // namespace
}  // namespace ddp::detail
