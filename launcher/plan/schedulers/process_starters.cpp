// mpirun and jsrun: they start ddprun as one of their processes, and must start only one on each node.
#include <stdexcept>

#include "base/schedulers/lsf_hosts.h"
#include "base/schedulers/slurm_step.h"
#include "launcher/plan/schedulers/systems.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {
namespace {

struct Starter {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;
  const char* one_per_node;  // how to start one on each node
};

std::optional<ScheduledPlace> read(const ProcessContext& context, const Starter& starter) {
  if (!has(context, starter.rank) || !has(context, starter.size)) return std::nullopt;
  ScheduledPlace place{.system = starter.name};
  read_nodes(context, starter.size, starter.rank, place);
  const auto local = number_of(context, starter.local_size, 1, kMaxScheduledNodes);
  if (!local && place.nnodes->value > 1) {
    place.problem = std::string(starter.name) + " started ddprun " + std::to_string(place.nnodes->value) + " times (" +
                    place.nnodes->why + ") without saying on how many nodes: give --nnodes and --node_rank";
  } else if (local && local->value > 1) {
    place.problem = std::string(starter.name) + " started ddprun " + std::to_string(local->value) +
                    " times on this node (" + local->why + "): start it once on each, " + starter.one_per_node +
                    ", or start PROGRAM without ddprun";
  }
  return place;
}

}  // namespace

std::optional<ScheduledPlace> read_open_mpi(const ProcessContext& context) {
  auto place = read(context, {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                              "mpirun --map-by ppr:1:node"});
  if (!place) return std::nullopt;
  // Azure ML's variable for the node of rank 0, "address:port"; the port has another purpose.
  if (const auto master = text_of(context, "AZ_BATCH_MASTER_NODE")) {
    place->master_addr = sourced_text("AZ_BATCH_MASTER_NODE", master->substr(0, master->find(':')));
  }
  return place;
}

std::optional<ScheduledPlace> read_mpich(const ProcessContext& context) {
  // srun --mpi=pmi2 sets them as well, but srun's own variables have more information.
  if (has(context, "SLURM_STEP_ID") && !has(context, "MPI_LOCALNRANKS")) return std::nullopt;
  return read(context, {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpirun -ppn 1"});
}

std::optional<ScheduledPlace> read_jsrun(const ProcessContext& context) {
  auto place =
      read(context, {"LSF", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE", "jsrun -r 1"});
  if (!place) return std::nullopt;
  const auto job = text_of(context, "LSB_JOBID");
  const auto list = text_of(context, "LSB_MCPU_HOSTS");
  if (!job || !list) return place;
  // The first host runs the job's script, and no ranks.
  const auto hosts = ddp::detail::lsf_hosts(*list);
  if (hosts.size() > 1) place->master_addr = {hosts[1], "the second host of " + shown("LSB_MCPU_HOSTS", *list)};
  place->master_port = {ddp::detail::port_of_job(*job), "derived from " + shown("LSB_JOBID", *job)};
  place->job_id = sourced_text("LSB_JOBID", *job);
  return place;
}

}  // namespace launcher
