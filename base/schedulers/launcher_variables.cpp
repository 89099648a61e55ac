#include "base/schedulers/launcher_variables.h"

#include <cstdlib>
#include <string_view>

namespace ddp {
namespace {

constexpr LauncherVariables kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr LauncherVariables kOtherLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"LSF", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"},
    // srun sets the number of tasks of the step. Batch scripts and interactive shells have only that of the allocation.
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
};

// A shell opened by salloc or `srun --pty` has the variables of a task. A program that the user starts there is not a
// task, unless srun starts it.
bool is_interactive_shell(const VariableLookup& lookup, const LauncherVariables& family) {
  if (std::string_view(family.world_size) != "SLURM_NTASKS") return false;
  const auto job = lookup("SLURM_JOB_NAME");
  return job == "bash" || job == "interactive";
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// Launchers that set a local rank are tried first: under `srun --mpi=pmi2` the variables of MPICH are set too, but only
// those of Slurm contain the local rank, which selects the GPU.
const LauncherVariables* launcher_variables(const VariableLookup& lookup) {
  if (lookup(kTorchrun.rank) || lookup(kTorchrun.world_size)) return &kTorchrun;
  for (const bool needs_local_rank : {true, false}) {
    for (const LauncherVariables& family : kOtherLaunchers) {
      // Both variables must be set, because a scheduler sets some of them in batch scripts too.
      if (!lookup(family.rank) || !lookup(family.world_size) || is_interactive_shell(lookup, family)) continue;
      if (!needs_local_rank || lookup(family.local_rank)) return &family;
    }
  }
  return nullptr;
}

}  // namespace ddp
