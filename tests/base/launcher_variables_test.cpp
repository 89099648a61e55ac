// Which launcher started this process: the families of variables, and what tells them apart.
#include "base/schedulers/launcher_variables.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "base/job.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using Variables = std::map<std::string, std::string>;

VariableLookup lookup_in(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

// The launcher, and the variable of its world size; "none" for a process of its own.
std::pair<std::string, std::string> family_of(const Variables& variables) {
  const LauncherVariables* family = launcher_variables(lookup_in(variables));
  if (family == nullptr) return {"none", ""};
  return {family->launcher, family->world_size};
}

Variables joined(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kTorchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kMpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kBarePmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
const Variables kSlurmStep{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "1"}};
const Variables kSlurmJob{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}};

TEST_CASE("LauncherVariables: tell the launchers apart") {
  CHECK(family_of({}) == std::pair<std::string, std::string>("none", ""));
  CHECK(family_of(kTorchrun) == std::pair<std::string, std::string>("torchrun", "WORLD_SIZE"));
  CHECK(family_of(kOpenMpi) == std::pair<std::string, std::string>("Open MPI", "OMPI_COMM_WORLD_SIZE"));
  CHECK(family_of(kMpich) == std::pair<std::string, std::string>("MPICH", "PMI_SIZE"));
  CHECK(family_of(kBarePmi) == std::pair<std::string, std::string>("MPICH", "PMI_SIZE"));
  CHECK(family_of(kSlurmStep) == std::pair<std::string, std::string>("Slurm", "SLURM_STEP_NUM_TASKS"));
  CHECK(family_of(kSlurmJob) == std::pair<std::string, std::string>("Slurm", "SLURM_NTASKS"));
}

TEST_CASE("LauncherVariables: torchrun's come before every other launcher's") {
  for (const Variables& other : {kOpenMpi, kMpich, kBarePmi, kSlurmStep, kSlurmJob}) {
    CHECK(family_of(joined(kTorchrun, other)).first == "torchrun");
    UNSCOPED_INFO("and one of the two is enough: that the other is missing is an error to be told");
    CHECK(family_of(joined({{"RANK", "0"}}, other)).first == "torchrun");
    CHECK(family_of(joined({{"WORLD_SIZE", "2"}}, other)).first == "torchrun");
  }
}

TEST_CASE("LauncherVariables: torchrun's local ones alone make no job") {
  CHECK(family_of({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}).first == "none");
}

TEST_CASE("LauncherVariables: a family needs both its rank and its world size") {
  for (const Variables& family : {kOpenMpi, kBarePmi, kSlurmStep, kSlurmJob}) {
    const LauncherVariables* names = launcher_variables(lookup_in(family));
    REQUIRE(names != nullptr);
    for (const char* missing : {names->rank, names->world_size}) {
      Variables rest = family;
      rest.erase(missing);
      INFO("without " << missing);
      CHECK(family_of(rest).first == "none");
    }
  }
}

TEST_CASE("LauncherVariables: a family that tells the local rank comes before one that does not") {
  UNSCOPED_INFO("srun --mpi=pmi2 sets both, and only Slurm's say which GPU is whose");
  CHECK(family_of(joined(kBarePmi, kSlurmStep)).first == "Slurm");
  CHECK(family_of(joined(kBarePmi, kSlurmJob)).first == "Slurm");
  UNSCOPED_INFO("where both tell it, MPI's own are nearer to the process than the scheduler's");
  CHECK(family_of(joined(kMpich, kSlurmStep)).first == "MPICH");
  CHECK(family_of(joined(kOpenMpi, kSlurmStep)).first == "Open MPI");
  UNSCOPED_INFO("and where neither does, too");
  CHECK(family_of(joined(kBarePmi, {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}})).first == "MPICH");
}

TEST_CASE("LauncherVariables: a shell that Slurm opened is not a task") {
  for (const char* shell : {"bash", "interactive"}) {
    const Variables job{{"SLURM_JOB_NAME", shell}};
    INFO(shell);
    CHECK(family_of(joined(kSlurmJob, job)).first == "none");
    UNSCOPED_INFO("unless srun started the program from it");
    CHECK(family_of(joined(kSlurmStep, job)).first == "Slurm");
    UNSCOPED_INFO("and MPI's variables are not doubted");
    CHECK(family_of(joined(kMpich, job)).first == "MPICH");
  }
  CHECK(family_of(joined(kSlurmJob, {{"SLURM_JOB_NAME", "bash_training"}})).first == "Slurm");
  CHECK(family_of(joined(kSlurmJob, {{"SLURM_JOB_NAME", ""}})).first == "Slurm");
}

TEST_CASE("LauncherVariables: an empty value is a variable that is set") {
  CHECK(family_of({{"RANK", ""}}).first == "torchrun");
  CHECK(family_of({{"PMI_RANK", ""}, {"PMI_SIZE", ""}}).first == "MPICH");
}

TEST_CASE("LauncherVariables: job and rank information agree on every family") {
  for (const Variables& family : {kTorchrun, kOpenMpi, kMpich, kBarePmi, kSlurmStep, kSlurmJob}) {
    const Variables variables = joined(family, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "1"}});
    const RankInfo info = rank_info_from_environment(lookup_in(variables));
    const JobPlace place = job_of_environment(lookup_in(variables));
    INFO(info.source);
    CHECK(info.rank == 1);
    CHECK(info.world_size == 2);
    CHECK(place.rank == info.rank);
    CHECK(place.size == info.world_size);
    CHECK(job_prefix(place) == who(info) + ": ");
  }
}

TEST_CASE("EnvironmentVariable: tells unset from empty") {
  ::setenv("DDPRUN_TEST_EMPTY", "", 1);
  CHECK(environment_variable("DDPRUN_TEST_EMPTY") == "");
  ::unsetenv("DDPRUN_TEST_EMPTY");
  CHECK(environment_variable("DDPRUN_TEST_EMPTY") == std::nullopt);
  UNSCOPED_INFO("a value is taken as it is, with every blank");
  ::setenv("DDPRUN_TEST_BLANKS", " a=b ", 1);
  CHECK(environment_variable("DDPRUN_TEST_BLANKS") == " a=b ");
  ::unsetenv("DDPRUN_TEST_BLANKS");
}

}  // namespace
}  // namespace ddp
