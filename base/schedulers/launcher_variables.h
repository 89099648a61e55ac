// The environment variables with which launchers give a process its place in the job. Does not use LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// Looks up an environment variable; nullopt when it is unset.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> environment_variable(const std::string& name);

/// The variables of one family of launchers. An empty name means that the family has no such variable.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

/// Those of the launcher that started this process: torchrun's (which ddprun sets too), else those of Open MPI, MPICH,
/// LSF's jsrun or srun. Null for a process that no launcher started.
const LauncherVariables* launcher_variables(const VariableLookup& lookup);

}  // namespace ddp
