#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;

using Variables = std::map<std::string, std::string>;

RankInfo read(const Variables& variables) {
  return rank_info_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string error_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

// What torchrun sets on the second of two ranks, with `changes` on top; an empty name removes nothing.
Variables torchrun(const Variables& changes = {}, const std::string& without = "") {
  Variables variables{{"RANK", "1"},
                      {"WORLD_SIZE", "2"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : changes) variables[name] = value;
  variables.erase(without);
  return variables;
}

TEST_CASE("RankInfo: is a single process without any variable") {
  const RankInfo info = read({});
  CHECK(info.rank == 0);
  CHECK(info.world_size == 1);
  CHECK(info.local_rank == 0);
  CHECK(info.local_world_size == 1);
  CHECK(info.master_addr == "");
  CHECK(info.source == "single process");
  CHECK_FALSE(info.agent_store);
}

TEST_CASE("RankInfo: is a single process where only the address is set") {
  CHECK(read({{"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}, {"LOCAL_RANK", "3"}}).source == "single process");
}

TEST_CASE("RankInfo: reads torchrun's variables") {
  const RankInfo info = read(torchrun({{"TORCHELASTIC_RESTART_COUNT", "3"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  CHECK(info.rank == 1);
  CHECK(info.world_size == 2);
  CHECK(info.local_rank == 1);
  CHECK(info.local_world_size == 2);
  CHECK(info.master_addr == "127.0.0.1");
  CHECK(info.master_port == 29500);
  CHECK(info.restart_count == 3);
  CHECK(info.agent_store);
  CHECK(info.source == "torchrun");
}

TEST_CASE("RankInfo: takes the agent store only for exactly true") {
  for (const char* value : {"true", "TRUE", "1", "False", "", " True", "True "}) {
    INFO("'" << value << "'");
    CHECK_FALSE(read(torchrun({{"TORCHELASTIC_USE_AGENT_STORE", value}})).agent_store);
  }
}

TEST_CASE("RankInfo: asks for the address only where there is a peer") {
  const RankInfo alone = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(alone.world_size == 1);
  CHECK(alone.source == "torchrun");
  CHECK_THAT(error_of(torchrun({}, "MASTER_ADDR")),
             ContainsSubstring("rank 1 of 2: MASTER_ADDR is not set") && ContainsSubstring("ddprun"));
  CHECK_THAT(error_of(torchrun({{"MASTER_ADDR", ""}})), ContainsSubstring("MASTER_ADDR is not set"));
  CHECK_THAT(error_of(torchrun({}, "MASTER_PORT")), ContainsSubstring("rank 1 of 2: MASTER_PORT is not set"));
}

TEST_CASE("RankInfo: works without the local variables as env does") {
  Variables variables = torchrun({}, "LOCAL_RANK");
  variables.erase("LOCAL_WORLD_SIZE");
  const RankInfo info = read(variables);
  CHECK(info.rank == 1);
  CHECK(info.local_rank == 0);
  CHECK(info.local_world_size == 1);
}

TEST_CASE("RankInfo: names the variable that is missing") {
  CHECK_THAT(error_of(torchrun({}, "WORLD_SIZE")), ContainsSubstring("WORLD_SIZE is not set although RANK is"));
  CHECK_THAT(error_of(torchrun({}, "RANK")), ContainsSubstring("RANK is not set although WORLD_SIZE is"));
}

TEST_CASE("RankInfo: names variable value and range of what is no number in range") {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"RANK", "-1"},
      {"RANK", "one"},
      {"RANK", ""},
      {"RANK", "1 "},
      {"RANK", " 1"},
      {"RANK", "+1"},
      {"RANK", "1.0"},
      {"RANK", "0x1"},
      {"RANK", "99999999999999999999"},
      {"RANK", "2147483648"},
      {"WORLD_SIZE", "0"},
      {"WORLD_SIZE", "-2"},
      {"WORLD_SIZE", "2x"},
      {"WORLD_SIZE", "4294967298"},
      {"LOCAL_RANK", "-1"},
      {"LOCAL_RANK", "first"},
      {"LOCAL_WORLD_SIZE", "0"},
      {"MASTER_PORT", "0"},
      {"MASTER_PORT", "65536"},
      {"MASTER_PORT", "http"},
      {"TORCHELASTIC_RESTART_COUNT", "-1"},
      {"TORCHELASTIC_RESTART_COUNT", "many"},
  };
  for (const auto& [name, value] : bad) {
    INFO(name << "=" << value);
    CHECK_THAT(error_of(torchrun({{name, value}})),
               ContainsSubstring(name + "='" + value + "'") && ContainsSubstring("expected a whole number from "));
  }
}

TEST_CASE("RankInfo: names both sides of a contradiction") {
  CHECK_THAT(error_of(torchrun({{"RANK", "2"}})),
             ContainsSubstring("RANK=2 but WORLD_SIZE=2") && ContainsSubstring("0 <= RANK < WORLD_SIZE"));
  CHECK_THAT(error_of(torchrun({{"LOCAL_RANK", "2"}})), ContainsSubstring("LOCAL_RANK=2 but LOCAL_WORLD_SIZE=2"));
  CHECK_THAT(error_of(torchrun({{"LOCAL_WORLD_SIZE", "3"}})),
             ContainsSubstring("LOCAL_WORLD_SIZE=3 is larger than WORLD_SIZE=2"));
  CHECK_THAT(error_of(torchrun({{"LOCAL_RANK", "5"}}, "LOCAL_WORLD_SIZE")),
             ContainsSubstring("LOCAL_RANK=5 but WORLD_SIZE=2"));
}

const Variables kMaster{{"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}};

Variables with_master(Variables variables) {
  variables.insert(kMaster.begin(), kMaster.end());
  return variables;
}

TEST_CASE("RankInfo: reads open mpi") {
  const RankInfo info = read(with_master({{"OMPI_COMM_WORLD_RANK", "3"},
                                          {"OMPI_COMM_WORLD_SIZE", "4"},
                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  CHECK(info.source == "Open MPI");
  CHECK(info.rank == 3);
  CHECK(info.world_size == 4);
  CHECK(info.local_rank == 1);
  CHECK(info.local_world_size == 2);
  CHECK(info.master_addr == "head");
}

TEST_CASE("RankInfo: reads mpich") {
  const RankInfo info =
      read(with_master({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}));
  CHECK(info.source == "MPICH");
  CHECK(info.rank == 1);
  CHECK(info.world_size == 4);
  CHECK(info.local_rank == 1);
  CHECK(info.local_world_size == 2);
}

TEST_CASE("RankInfo: reads tasks of srun") {
  const RankInfo info = read(with_master(
      {{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "1"}}));
  CHECK(info.source == "Slurm");
  CHECK(info.rank == 5);
  UNSCOPED_INFO("the step's tasks count, not the allocation's");
  CHECK(info.world_size == 8);
  CHECK(info.local_rank == 1);
  CHECK(read(with_master({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}})).world_size == 2);
}

TEST_CASE("RankInfo: takes the local rank from Slurm where MPICH's variables lack it") {
  const RankInfo info = read(with_master({{"PMI_RANK", "1"},
                                          {"PMI_SIZE", "2"},
                                          {"SLURM_PROCID", "1"},
                                          {"SLURM_STEP_NUM_TASKS", "2"},
                                          {"SLURM_LOCALID", "1"}}));
  CHECK(info.local_rank == 1);
  // mpirun inside a Slurm job: Slurm's task is mpirun's helper, one a node.
  const RankInfo under_mpirun = read(with_master({{"PMI_RANK", "3"},
                                                  {"PMI_SIZE", "4"},
                                                  {"MPI_LOCALRANKID", "1"},
                                                  {"MPI_LOCALNRANKS", "2"},
                                                  {"SLURM_PROCID", "1"},
                                                  {"SLURM_STEP_NUM_TASKS", "2"},
                                                  {"SLURM_LOCALID", "0"}}));
  CHECK(under_mpirun.rank == 3);
  CHECK(under_mpirun.world_size == 4);
}

TEST_CASE("RankInfo: is a single process in Slurm's shells") {
  // salloc: an allocation, but no task.
  CHECK(read({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}).world_size == 1);
  // The interactive step of newer versions is a task of its own step, with the allocation's SLURM_NTASKS.
  CHECK(read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}})
            .world_size == 1);
  for (const char* name : {"bash", "interactive"}) {
    CHECK(
        read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_NAME", name}}).source ==
        "single process");
  }
}

TEST_CASE("RankInfo: reads tasks that srun starts from an interactive shell") {
  const RankInfo info = read(with_master({{"SLURM_PROCID", "1"},
                                          {"SLURM_STEP_NUM_TASKS", "2"},
                                          {"SLURM_NTASKS", "2"},
                                          {"SLURM_LOCALID", "1"},
                                          {"SLURM_JOB_NAME", "interactive"}}));
  CHECK(info.rank == 1);
  CHECK(info.world_size == 2);
}

TEST_CASE("RankInfo: prefers torchrun's variables over a schedulers") {
  Variables variables = torchrun();
  variables.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"OMPI_COMM_WORLD_RANK", "7"}});
  const RankInfo info = read(variables);
  CHECK(info.source == "torchrun");
  CHECK(info.rank == 1);
}

TEST_CASE("RankInfo: applies the same checks to every family") {
  CHECK_THAT(error_of(with_master({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}})),
             ContainsSubstring("OMPI_COMM_WORLD_RANK=4 but OMPI_COMM_WORLD_SIZE=4"));
  CHECK_THAT(error_of(with_master({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}})), ContainsSubstring("PMI_RANK='x'"));
  CHECK_THAT(error_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}}),
             ContainsSubstring("rank 0 of 2: MASTER_ADDR is not set"));
  CHECK_THAT(error_of(with_master({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "2"}})),
             ContainsSubstring("SLURM_LOCALID=2 but SLURM_STEP_NUM_TASKS=2"));
}

TEST_CASE("RankInfo: reads the process's own environment by default") {
  REQUIRE(setenv("DDPRUN_TEST_VARIABLE", "value", 1) == 0);
  CHECK(process_environment()("DDPRUN_TEST_VARIABLE") == "value");
  CHECK(process_environment()("DDPRUN_TEST_VARIABLE_THAT_IS_UNSET") == std::nullopt);
}

}  // namespace
}  // namespace ddp
