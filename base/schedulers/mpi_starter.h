// Which mpirun started this process: something that is equal for all of its ranks on this machine and for no others.
#pragma once

#include <optional>
#include <string>

#include "base/schedulers/launcher_variables.h"

namespace ddp::detail {

/// Open MPI's and PMIx's name of the job, else the address or the process of MPICH's starter; none where neither can be
/// known.
std::optional<std::string> mpi_starter(const VariableLookup& lookup);

}  // namespace ddp::detail
