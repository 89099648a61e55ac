// The variables that srun sets for each task. The launcher uses them if there is one task per node, the library if
// there is one task per rank; so both choose the address by the same rule. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/schedulers/launcher_variables.h"

namespace ddp::detail {

/// Expands a list of hosts in its order, as `scontrol show hostnames` does. Throws std::invalid_argument if the list is
/// not valid or has more than 65536 hosts.
std::vector<std::string> expand_slurm_hosts(std::string_view list);

/// Returns the value for node `node` (counted from 0) in a list such as "2(x3),1"; for node 3 that list gives 1. Throws
/// std::invalid_argument if the list is not valid or has no value for that node.
int slurm_tasks_on(std::string_view list, int node);

/// Describes this task in its Slurm step. A batch script and a shell opened by salloc do not belong to a step.
struct SlurmStep {
  int nodes = 1;             ///< SLURM_STEP_NUM_NODES
  int node = 0;              ///< SLURM_NODEID: this node, from 0
  int tasks_on_node = 1;     ///< the value of SLURM_STEP_TASKS_PER_NODE for this node
  std::string first_host{};  ///< the first host in SLURM_STEP_NODELIST, where task 0 runs
  std::uint16_t port = 0;    ///< for rank 0; derived from the numbers of the job, the step and the restart
  std::string name{};        ///< "JOB.STEP", as shown by sacct
};

/// Returns nullopt if srun did not start this process. Throws std::invalid_argument with the name of the variable if
/// one is missing or not valid.
std::optional<SlurmStep> slurm_step(const VariableLookup& lookup);

/// A port from 15000 to 24999, below the range from which the kernel assigns ports. The same job number gives the same
/// port; adjacent job numbers give different ports.
std::uint16_t port_of_job(std::uint64_t number);
/// The same for the name of a job.
std::uint16_t port_of_job(const std::string& name);

}  // namespace ddp::detail
