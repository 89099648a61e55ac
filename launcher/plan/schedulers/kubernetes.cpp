// Pods that know their number: operators that write it into torchrun's variables, LeaderWorkerSet, indexed Jobs. What
// Kubeflow's Trainer v2 and newer PyTorchJobs set are PET_ variables, which are options.
#include <stdexcept>

#include "launcher/plan/schedulers/systems.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {

// RANK and WORLD_SIZE count processes if torchrun has set them; then there is a LOCAL_RANK, too. These operators count
// pods with them.
std::optional<ScheduledPlace> read_pods(const ProcessContext& context) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (!has(context, name)) return std::nullopt;
  }
  if (has(context, "LOCAL_RANK")) return std::nullopt;
  ScheduledPlace place{.system = "RANK and WORLD_SIZE of pods, without LOCAL_RANK"};
  read_nodes(context, "WORLD_SIZE", "RANK", place);
  // PyTorchJob v1 since 1.7 counts processes in WORLD_SIZE, but still pods in RANK; its variables also have the number
  // of processes per pod.
  if (const auto nodes = number_of(context, "PET_NNODES", 1, kMaxScheduledNodes)) place.nnodes = nodes;
  place.nproc_per_node = number_of(context, "NPROC_PER_NODE", 1, kMaxScheduledNodes);
  return place;
}

std::optional<ScheduledPlace> read_leader_worker_set(const ProcessContext& context) {
  if (!has(context, "LWS_GROUP_SIZE") || !has(context, "LWS_WORKER_INDEX")) return std::nullopt;
  ScheduledPlace place{.system = "LeaderWorkerSet"};
  read_nodes(context, "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", place);
  if (const auto leader = text_of(context, "LWS_LEADER_ADDRESS")) {
    place.master_addr = sourced_text("LWS_LEADER_ADDRESS", *leader);
  }
  return place;
}

// The variables contain only the node's number. Such Jobs are often many jobs of one node each, so the user must give
// --nnodes if it is one job.
std::optional<ScheduledPlace> read_indexed_job(const ProcessContext& context) {
  if (!has(context, "JOB_COMPLETION_INDEX")) return std::nullopt;
  return ScheduledPlace{.system = "indexed Job",
                        .node_rank = number_of(context, "JOB_COMPLETION_INDEX", 0, kMaxScheduledNodes)};
}

}  // namespace launcher
