#include "comm/rank_info.h"

#include <gmock/gmock.h>

#include <map>
#include <stdexcept>

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

TEST(RankInfo, IsASingleProcessWithoutAnyVariable) {
  const RankInfo info = read({});
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.world_size, 1);
  EXPECT_EQ(info.local_rank, 0);
  EXPECT_EQ(info.local_world_size, 1);
  EXPECT_EQ(info.master_addr, "");
  EXPECT_EQ(info.source, "single process");
  EXPECT_FALSE(info.agent_store);
}

TEST(RankInfo, IsASingleProcessWhereOnlyTheAddressIsSet) {
  EXPECT_EQ(read({{"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}, {"LOCAL_RANK", "3"}}).source, "single process");
}

TEST(RankInfo, ReadsTorchrunsVariables) {
  const RankInfo info = read(torchrun({{"TORCHELASTIC_RESTART_COUNT", "3"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.world_size, 2);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 2);
  EXPECT_EQ(info.master_addr, "127.0.0.1");
  EXPECT_EQ(info.master_port, 29500);
  EXPECT_EQ(info.restart_count, 3);
  EXPECT_TRUE(info.agent_store);
  EXPECT_EQ(info.source, "torchrun");
}

TEST(RankInfo, TakesTheAgentStoreOnlyForExactlyTrue) {
  for (const char* value : {"true", "TRUE", "1", "False", "", " True", "True "}) {
    EXPECT_FALSE(read(torchrun({{"TORCHELASTIC_USE_AGENT_STORE", value}})).agent_store) << "'" << value << "'";
  }
}

TEST(RankInfo, AsksForTheAddressOnlyWhereThereIsAPeer) {
  const RankInfo alone = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(alone.world_size, 1);
  EXPECT_EQ(alone.source, "torchrun");
  EXPECT_THAT(error_of(torchrun({}, "MASTER_ADDR")),
              AllOf(HasSubstr("rank 1 of 2: MASTER_ADDR is not set"), HasSubstr("ddprun")));
  EXPECT_THAT(error_of(torchrun({{"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(error_of(torchrun({}, "MASTER_PORT")), HasSubstr("rank 1 of 2: MASTER_PORT is not set"));
}

TEST(RankInfo, WorksWithoutTheLocalVariablesAsEnvDoes) {
  Variables variables = torchrun({}, "LOCAL_RANK");
  variables.erase("LOCAL_WORLD_SIZE");
  const RankInfo info = read(variables);
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.local_rank, 0);
  EXPECT_EQ(info.local_world_size, 1);
}

TEST(RankInfo, NamesTheVariableThatIsMissing) {
  EXPECT_THAT(error_of(torchrun({}, "WORLD_SIZE")), HasSubstr("WORLD_SIZE is not set although RANK is"));
  EXPECT_THAT(error_of(torchrun({}, "RANK")), HasSubstr("RANK is not set although WORLD_SIZE is"));
}

TEST(RankInfo, NamesVariableValueAndRangeOfWhatIsNoNumberInRange) {
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
    EXPECT_THAT(error_of(torchrun({{name, value}})),
                AllOf(HasSubstr(name + "='" + value + "'"), HasSubstr("expected a whole number from ")))
        << name << "=" << value;
  }
}

TEST(RankInfo, NamesBothSidesOfAContradiction) {
  EXPECT_THAT(error_of(torchrun({{"RANK", "2"}})),
              AllOf(HasSubstr("RANK=2 but WORLD_SIZE=2"), HasSubstr("0 <= RANK < WORLD_SIZE")));
  EXPECT_THAT(error_of(torchrun({{"LOCAL_RANK", "2"}})), HasSubstr("LOCAL_RANK=2 but LOCAL_WORLD_SIZE=2"));
  EXPECT_THAT(error_of(torchrun({{"LOCAL_WORLD_SIZE", "3"}})),
              HasSubstr("LOCAL_WORLD_SIZE=3 is larger than WORLD_SIZE=2"));
  EXPECT_THAT(error_of(torchrun({{"LOCAL_RANK", "5"}}, "LOCAL_WORLD_SIZE")),
              HasSubstr("LOCAL_RANK=5 but WORLD_SIZE=2"));
}

const Variables kMaster{{"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}};

Variables with_master(Variables variables) {
  variables.insert(kMaster.begin(), kMaster.end());
  return variables;
}

TEST(RankInfo, ReadsOpenMpi) {
  const RankInfo info = read(with_master({{"OMPI_COMM_WORLD_RANK", "3"},
                                          {"OMPI_COMM_WORLD_SIZE", "4"},
                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(info.source, "Open MPI");
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.world_size, 4);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 2);
  EXPECT_EQ(info.master_addr, "head");
}

TEST(RankInfo, ReadsMpich) {
  const RankInfo info =
      read(with_master({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}));
  EXPECT_EQ(info.source, "MPICH");
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.world_size, 4);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 2);
}

TEST(RankInfo, ReadsTasksOfSrun) {
  const RankInfo info = read(with_master(
      {{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "1"}}));
  EXPECT_EQ(info.source, "Slurm");
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.world_size, 8) << "the step's tasks count, not the allocation's";
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(read(with_master({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}})).world_size, 2);
}

TEST(RankInfo, TakesTheLocalRankFromSlurmWhereMpichsVariablesLackIt) {
  const RankInfo info = read(with_master({{"PMI_RANK", "1"},
                                          {"PMI_SIZE", "2"},
                                          {"SLURM_PROCID", "1"},
                                          {"SLURM_STEP_NUM_TASKS", "2"},
                                          {"SLURM_LOCALID", "1"}}));
  EXPECT_EQ(info.local_rank, 1);
  // mpirun inside a Slurm job: Slurm's task is mpirun's helper, one a node.
  const RankInfo under_mpirun = read(with_master({{"PMI_RANK", "3"},
                                                  {"PMI_SIZE", "4"},
                                                  {"MPI_LOCALRANKID", "1"},
                                                  {"MPI_LOCALNRANKS", "2"},
                                                  {"SLURM_PROCID", "1"},
                                                  {"SLURM_STEP_NUM_TASKS", "2"},
                                                  {"SLURM_LOCALID", "0"}}));
  EXPECT_EQ(under_mpirun.rank, 3);
  EXPECT_EQ(under_mpirun.world_size, 4);
}

TEST(RankInfo, IsASingleProcessInSlurmsShells) {
  // salloc: an allocation, but no task.
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}).world_size, 1);
  // The interactive step of newer versions is a task of its own step, with the allocation's SLURM_NTASKS.
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}})
                .world_size,
            1);
  for (const char* name : {"bash", "interactive"}) {
    EXPECT_EQ(
        read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_NAME", name}}).source,
        "single process");
  }
}

TEST(RankInfo, ReadsTasksThatSrunStartsFromAnInteractiveShell) {
  const RankInfo info = read(with_master({{"SLURM_PROCID", "1"},
                                          {"SLURM_STEP_NUM_TASKS", "2"},
                                          {"SLURM_NTASKS", "2"},
                                          {"SLURM_LOCALID", "1"},
                                          {"SLURM_JOB_NAME", "interactive"}}));
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.world_size, 2);
}

TEST(RankInfo, PrefersTorchrunsVariablesOverASchedulers) {
  Variables variables = torchrun();
  variables.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"OMPI_COMM_WORLD_RANK", "7"}});
  const RankInfo info = read(variables);
  EXPECT_EQ(info.source, "torchrun");
  EXPECT_EQ(info.rank, 1);
}

TEST(RankInfo, AppliesTheSameChecksToEveryFamily) {
  EXPECT_THAT(error_of(with_master({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}})),
              HasSubstr("OMPI_COMM_WORLD_RANK=4 but OMPI_COMM_WORLD_SIZE=4"));
  EXPECT_THAT(error_of(with_master({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}})), HasSubstr("PMI_RANK='x'"));
  EXPECT_THAT(error_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}}),
              HasSubstr("rank 0 of 2: MASTER_ADDR is not set"));
  EXPECT_THAT(error_of(with_master({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "2"}})),
              HasSubstr("SLURM_LOCALID=2 but SLURM_STEP_NUM_TASKS=2"));
}

TEST(RankInfo, ReadsTheProcesssOwnEnvironmentByDefault) {
  ASSERT_EQ(setenv("DDPRUN_TEST_VARIABLE", "value", 1), 0);
  EXPECT_EQ(process_environment()("DDPRUN_TEST_VARIABLE"), "value");
  EXPECT_EQ(process_environment()("DDPRUN_TEST_VARIABLE_THAT_IS_UNSET"), std::nullopt);
}

}  // namespace
}  // namespace ddp
