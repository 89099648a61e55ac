// The meeting point of ranks that were given no address: derived from values that the scheduler or mpirun sets equally
// for all of them.
#pragma once

#include <cstdint>
#include <string>

#include "base/schedulers/launcher_variables.h"

namespace ddp::detail {

/// rank 0's host and a port, or why they cannot be known.
struct MasterAddress {
  std::string host{};      ///< empty: not known
  std::uint16_t port = 0;  ///< 0: not known
  std::string obstacle{};  ///< what to do where they are not known; a sentence, empty where there is nothing to add
};

/// For a rank that `launcher` (a LauncherVariables' name) started as one of `local_world_size` on its host and of
/// `world_size` in all. srun's tasks meet on the first host of their step, those that mpirun or jsrun started on one
/// host on that host. Throws std::invalid_argument for variables of Slurm's that cannot be right.
MasterAddress master_address(const VariableLookup& lookup, const std::string& launcher, int world_size,
                             int local_world_size);

}  // namespace ddp::detail
