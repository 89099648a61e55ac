// The variables that srun sets for each task. The launcher reads it where there is one task for a node, the library
// where there is one for a rank; so both meet by the same rule. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/schedulers/launcher_variables.h"

namespace ddp::detail {

/// The hosts of a list, in its order, as `scontrol show hostnames` prints them. Throws std::invalid_argument for what
/// is not a list, and for more than 65536 hosts.
std::vector<std::string> expand_slurm_hosts(std::string_view list);

/// The number for node `node`, from 0, of a list such as "2(x3),1"; it is 1 there for node 3. Throws
/// std::invalid_argument for text that is not a list, and where it ends before that node.
int slurm_tasks_on(std::string_view list, int node);

/// The numbers of this task in its Slurm step. A batch script and a shell of salloc do not belong to a step.
struct SlurmStep {
  int nodes = 1;             ///< SLURM_STEP_NUM_NODES
  int node = 0;              ///< SLURM_NODEID: this one, from 0
  int tasks_on_node = 1;     ///< of SLURM_STEP_TASKS_PER_NODE: on this one
  std::string first_host{};  ///< of SLURM_STEP_NODELIST: where task 0 runs
  std::uint16_t port = 0;    ///< for rank 0, made of the job's and the step's number and of the restart's
  std::string name{};        ///< "JOB.STEP", as sacct shows it
};

/// None where no srun started this process. Throws std::invalid_argument, naming the variable, where one is missing or
/// cannot be right.
std::optional<SlurmStep> slurm_step(const VariableLookup& lookup);

/// A port from 15000 to 24999, below those that the kernel gives to anybody: equal for equal jobs, and different ones
/// for jobs whose numbers are neighbours.
std::uint16_t port_of_job(std::uint64_t number);
/// The same of a name.
std::uint16_t port_of_job(const std::string& name);

}  // namespace ddp::detail
