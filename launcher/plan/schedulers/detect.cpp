#include "launcher/plan/schedulers/detect.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "base/joined.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {
namespace {

struct System {
  const char* name;
  ReadSystem read;
};

constexpr std::array kStarters = {System{"Open MPI", read_open_mpi}, System{"MPICH", read_mpich},
                                  System{"LSF", read_jsrun}, System{"Slurm", read_slurm}};
constexpr std::array kPlatforms = {
    System{"the pod", read_pods},           System{"LeaderWorkerSet", read_leader_worker_set},
    System{"SageMaker", read_sagemaker},    System{"AWS Batch", read_aws_batch},
    System{"Vertex AI", read_vertex},       System{"LSF", read_lsf},
    System{"indexed Job", read_indexed_job}};

std::optional<ScheduledPlace> place_of(const System& system, const ProcessContext& context) {
  try {
    return system.read(context);
  } catch (const std::invalid_argument& error) {
    return ScheduledPlace{.system = system.name, .problem = error.what()};
  }
}

template <typename Value>
bool are_unequal(const std::optional<Sourced<Value>>& a, const std::optional<Sourced<Value>>& b) {
  return a && b && a->value != b->value;
}

template <typename Value>
void fill(std::optional<Sourced<Value>>& place, const std::optional<Sourced<Value>>& other) {
  if (!place) place = other;
}

std::string sources_text(const ScheduledPlace& place) {
  std::string text;
  for (const auto* sourced : {&place.nnodes, &place.node_rank}) {
    if (*sourced) ddp::detail::append_item(text, (*sourced)->why);
  }
  return text;
}

// Merges the places of two schedulers.
void join(ScheduledPlace& place, const ScheduledPlace& other) {
  if (place.problem.empty()) place.problem = other.problem;
  if (are_unequal(place.nnodes, other.nnodes) || are_unequal(place.node_rank, other.node_rank)) {
    place.problem = place.system + " (" + sources_text(place) + ") and " + other.system + " (" + sources_text(other) +
                    ") contradict each other: give --nnodes and --node_rank";
  }
  place.system += ", " + other.system;
  fill(place.nnodes, other.nnodes);
  fill(place.node_rank, other.node_rank);
  fill(place.nproc_per_node, other.nproc_per_node);
  fill(place.master_addr, other.master_addr);
  fill(place.master_port, other.master_port);
  fill(place.job_id, other.job_id);
}

void find_starter(const ProcessContext& context, Detection& found) {
  for (const System& system : kStarters) {
    auto place = place_of(system, context);
    if (!place) continue;
    if (!found.place) {
      found.place = std::move(place);
      continue;
    }
    found.notes.push_back(place->system + "'s variables are ignored: those of " + found.place->system +
                          " take precedence");
    fill(found.place->kill_wait, place->kill_wait);
  }
}

void find_platform(const ProcessContext& context, Detection& found) {
  // The starter counts even if its variables contain no node, as in a shell within a Slurm allocation.
  if (found.place) return;
  for (const System& system : kPlatforms) {
    auto place = place_of(system, context);
    if (!place) continue;
    if (found.place) {
      join(*found.place, *place);
    } else {
      found.place = std::move(place);
    }
  }
}

}  // namespace

Detection detect_scheduler(const ProcessContext& context) {
  Detection found;
  const auto rank = text_of(context, "RANK");
  const auto local = text_of(context, "LOCAL_RANK");
  if (rank && local) {
    found.notes.push_back("the variables of schedulers are ignored, as ddprun runs in a rank of another launcher (" +
                          shown("RANK", *rank) + ", " + shown("LOCAL_RANK", *local) + ")");
    return found;
  }
  find_starter(context, found);
  find_platform(context, found);
  return found;
}

}  // namespace launcher
