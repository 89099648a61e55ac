// The systems that ddprun detects by their variables. Each function is pure. It returns nothing if its variables are
// not set, and throws std::invalid_argument, which names the variable, if they are invalid.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/plan/schedulers/process_context.h"

namespace launcher {

// A node's place in its job according to a scheduler's variables; each value has the variable from which it comes.
template <typename Value>
struct Sourced {
  Value value{};
  std::string why{};  // "SLURM_NODEID=1", as it can be shown
};

struct ScheduledPlace {
  std::string system{};  // "Slurm"
  std::optional<Sourced<int>> nnodes = std::nullopt;
  std::optional<Sourced<int>> node_rank = std::nullopt;
  std::optional<Sourced<int>> nproc_per_node = std::nullopt;
  std::optional<Sourced<std::string>> master_addr = std::nullopt;
  std::optional<Sourced<std::uint16_t>> master_port = std::nullopt;
  std::optional<Sourced<std::string>> job_id = std::nullopt;  // equal on all nodes of the job
  std::optional<Sourced<std::chrono::seconds>> kill_wait =
      std::nullopt;       // the time between the scheduler's TERM and its KILL
  std::string problem{};  // why the variables give no place although they should, and what to do; else empty
};

using ReadSystem = std::optional<ScheduledPlace> (*)(const ProcessContext&);

// Systems that start processes: each variable has the number of its own process. They must start one ddprun on each
// node.
std::optional<ScheduledPlace> read_open_mpi(const ProcessContext& context);
std::optional<ScheduledPlace> read_mpich(const ProcessContext& context);
std::optional<ScheduledPlace> read_jsrun(const ProcessContext& context);
std::optional<ScheduledPlace> read_slurm(const ProcessContext& context);

// Systems that start containers or machines, and number them.
std::optional<ScheduledPlace> read_pods(
    const ProcessContext& context);  // RANK of Kubeflow's PyTorchJob v1, of PAI's DLC
std::optional<ScheduledPlace> read_leader_worker_set(const ProcessContext& context);
std::optional<ScheduledPlace> read_sagemaker(const ProcessContext& context);
std::optional<ScheduledPlace> read_aws_batch(const ProcessContext& context);
std::optional<ScheduledPlace> read_vertex(const ProcessContext& context);
std::optional<ScheduledPlace> read_lsf(const ProcessContext& context);
std::optional<ScheduledPlace> read_indexed_job(const ProcessContext& context);

}  // namespace launcher
