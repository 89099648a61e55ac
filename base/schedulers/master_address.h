// The rendezvous address for ranks that were given no address. It is derived from values that the scheduler or mpirun
// sets identically for all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "base/schedulers/launcher_variables.h"

namespace ddp::detail {

/// The host of rank 0 and a port, or the reason why they are unknown.
struct MasterAddress {
  std::string host{};      ///< empty: unknown
  std::uint16_t port = 0;  ///< 0: unknown
  std::string advice{};    ///< advice for the user if they are unknown: a sentence, or empty
};

/// Determines the address for a rank that `launcher` (the name in LauncherVariables) started as one of
/// `local_world_size` on its host and of `world_size` in total. Tasks of srun use the first host of their step. If all
/// ranks run on one host, the ranks of mpirun or jsrun use that host. Throws std::invalid_argument if the variables of
/// Slurm are not valid.
MasterAddress master_address(const VariableLookup& lookup, const std::string& launcher, int world_size,
                             int local_world_size);

}  // namespace ddp::detail
