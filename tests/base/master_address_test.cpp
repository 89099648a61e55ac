// Where ranks meet that were given no address, and what rank_info_from_environment() makes of it.
#include "base/schedulers/master_address.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <map>
#include <stdexcept>
#include <string>

#include <ddprun/base/rank_info.h>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Variables = std::map<std::string, std::string>;

VariableLookup lookup_of(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

RankInfo read(const Variables& variables) {
  return rank_info_from_environment(lookup_of(variables));
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

// As Open MPI 4.1 sets them.
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "556072961"},     {"OMPI_MCA_ess_base_jobid", "556072961"}};
const Variables kMpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},
                       {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_JOB_ID", "7"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                       {"SLURM_STEP_NODELIST", "n[01-02]"}};
const Variables kJsrun{{"JSM_NAMESPACE_RANK", "1"},
                       {"JSM_NAMESPACE_SIZE", "2"},
                       {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                       {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
                       {"LSB_JOBID", "4711"}};

TEST_CASE("MeetingPoint: srun's tasks meet on the first host of their step") {
  const RankInfo info = read(kSlurm);
  CHECK(info.source == "Slurm");
  CHECK(info.rank == 3);
  CHECK(info.local_rank == 1);
  CHECK(info.local_world_size == 2);
  CHECK(info.master_addr == "n01");
  CHECK(info.master_port == 15007);
  CHECK(info.restart_count == 0);
  CHECK(read(with(kSlurm, {{"SLURM_RESTART_COUNT", "2"}})).restart_count == 2);
}

TEST_CASE("MeetingPoint: on one host it is loopback") {
  CHECK(read(kOpenMpi).master_addr == "127.0.0.1");
  CHECK(read(kJsrun).master_addr == "127.0.0.1");
  CHECK(read(kJsrun).source == "LSF");
  CHECK(read(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_STEP_TASKS_PER_NODE", "4"},
                           {"SLURM_STEP_NODELIST", "n01"}}))
            .master_addr == "127.0.0.1");
}

TEST_CASE("MeetingPoint: jsrun's ranks meet on the first host that computes") {
  const Variables two_hosts = with(kJsrun, {{"JSM_NAMESPACE_LOCAL_RANK", "0"},
                                            {"JSM_NAMESPACE_LOCAL_SIZE", "1"},
                                            {"LSB_MCPU_HOSTS", "batch5 1 h22n07 42 h22n08 42"}});
  CHECK(read(two_hosts).master_addr == "h22n07");
  CHECK(read(two_hosts).master_port == read(kJsrun).master_port);
  for (const char* list : {"", "batch5", "batch5 x", "batch5 1 h22n07"}) {
    CAPTURE(list);
    CHECK_THROWS_AS(read(with(two_hosts, {{"LSB_MCPU_HOSTS", list}})), std::invalid_argument);
  }
}

TEST_CASE("MeetingPoint: what is given counts more, each for itself") {
  for (const Variables& variables : {kOpenMpi, kSlurm, kJsrun}) {
    const RankInfo told = read(variables);
    const RankInfo with_address = read(with(variables, {{"MASTER_ADDR", "head"}}));
    CHECK(with_address.master_addr == "head");
    CHECK(with_address.master_port == told.master_port);
    const RankInfo with_port = read(with(variables, {{"MASTER_PORT", "77"}}));
    CHECK(with_port.master_addr == told.master_addr);
    CHECK(with_port.master_port == 77);
  }
}

TEST_CASE("MeetingPoint: two jobs of mpirun on one host meet at different ports") {
  CHECK(read(kOpenMpi).master_port != read(with(kOpenMpi, {{"PMIX_NAMESPACE", "556138497"}})).master_port);
}

TEST_CASE("MeetingPoint: MPICH's ranks know each other by the process that started them") {
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
  const RankInfo info = read(with(kMpich, {{"PMI_FD", std::to_string(pair[0])}}));
  CHECK(info.master_addr == "127.0.0.1");
  CHECK(info.master_port >= 15000);
  CHECK(info.master_port == read(with(kMpich, {{"PMI_FD", std::to_string(pair[1])}})).master_port);
  ::close(pair[0]);
  ::close(pair[1]);
  CHECK(read(with(kMpich, {{"PMI_PORT", "head:4711"}})).master_port >= 15000);
}

TEST_CASE("MeetingPoint: where it cannot be known the error says how to tell it") {
  const auto refuses = [](const Variables& variables, const std::string& name, const std::string& advice) {
    CAPTURE(name, advice);
    CHECK_THROWS_MATCHES(
        read(variables), std::invalid_argument,
        MessageMatches(ContainsSubstring("rank 1 of 2: " + name + " is not set") && ContainsSubstring(advice)));
  };
  refuses(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}), "MASTER_ADDR",
          "-x MASTER_ADDR=HOST");
  refuses(kMpich, "MASTER_PORT", "-genv MASTER_PORT PORT");
  refuses(with(kMpich, {{"PMI_FD", "x"}}), "MASTER_PORT", "-genv MASTER_PORT PORT");
  refuses(with(kMpich, {{"PMI_FD", "99999"}}), "MASTER_PORT", "-genv MASTER_PORT PORT");
  refuses({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "MASTER_ADDR", "-genv MASTER_ADDR HOST");
  refuses({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}}, "MASTER_ADDR", "started by srun");
  refuses({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR", "Start the program with ddprun");
}

TEST_CASE("MeetingPoint: contradictions of srun's variables are named") {
  CHECK_THROWS_MATCHES(read(with(kSlurm, {{"SLURM_LOCALID", "2"}})), std::invalid_argument,
                       MessageMatches(ContainsSubstring("SLURM_LOCALID=2 but")));
  CHECK_THROWS_MATCHES(read(with(kSlurm, {{"SLURM_STEP_NODELIST", "n[2-1]"}})), std::invalid_argument,
                       MessageMatches(ContainsSubstring("SLURM_STEP_NODELIST: 'n[2-1]'")));
}

TEST_CASE("MeetingPoint: a rank that a pod's operator started is one of a pod, and only where there is one in each") {
  // Kubeflow's PyTorchJob and PAI's DLC count pods in RANK, without a LOCAL_RANK.
  const Variables pod{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
  CHECK(read(pod).local_rank == 0);
  CHECK(read(with(pod, {{"PET_NPROC_PER_NODE", "1"}})).world_size == 2);
  for (const char* name : {"PET_NPROC_PER_NODE", "NPROC_PER_NODE"}) {
    for (const char* ranks : {"4", "gpu", "auto"}) {
      CHECK_THROWS_MATCHES(read(with(pod, {{name, ranks}})), std::invalid_argument,
                           MessageMatches(ContainsSubstring(std::string(name) + "='" + ranks + "'")));
    }
    UNSCOPED_INFO("a rank of torchrun's has a LOCAL_RANK");
    CHECK(read(with(pod, {{name, "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})).rank == 1);
  }
}

}  // namespace
}  // namespace ddp::detail
