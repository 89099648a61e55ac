// The environment variables that launchers use to give a process its rank. Does not use LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// Looks up an environment variable; returns nullopt if it is not set.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> environment_variable(const std::string& name);

/// The names of the variables of one kind of launcher. An empty name means that the launcher has no such variable.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

/// The variables of the launcher that started this process: torchrun (ddprun sets the same ones), otherwise Open MPI,
/// MPICH, LSF's jsrun or srun. Returns null if no launcher started this process.
const LauncherVariables* launcher_variables(const VariableLookup& lookup);

}  // namespace ddp
