#include "launcher/plan/schedulers/variables.h"

#include <array>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "launcher/os/system/utf8.h"

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
    return ScheduledPlace{.system = system.name, .obstacle = error.what()};
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

std::string said(const ScheduledPlace& place) {
  std::string text;
  for (const auto* told : {&place.nnodes, &place.node_rank}) {
    if (*told) text.append(text.empty() ? "" : ", ").append((*told)->why);
  }
  return text;
}

// Two tell this node's place.
void join(ScheduledPlace& place, const ScheduledPlace& other) {
  if (place.obstacle.empty()) place.obstacle = other.obstacle;
  if (are_unequal(place.nnodes, other.nnodes) || are_unequal(place.node_rank, other.node_rank)) {
    place.obstacle = place.system + " (" + said(place) + ") and " + other.system + " (" + said(other) +
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
    found.notes.push_back(place->system + "'s variables do not count, as those of " + found.place->system +
                          " are nearer to this process");
    fill(found.place->kill_wait, place->kill_wait);
  }
}

void find_platform(const ProcessContext& context, Detection& found) {
  // A starter that says nothing of nodes, such as a shell in an allocation of Slurm's, stays.
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

constexpr std::size_t kMostShown = 80;

Sourced<int> parse(const std::string& name, const std::string& text, int lowest, int highest) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < lowest || value > highest) {
    throw std::invalid_argument(shown(name, text) + ": expected a whole number from " + std::to_string(lowest) +
                                " to " + std::to_string(highest));
  }
  return {value, shown(name, text)};
}

}  // namespace

Detection detect_scheduler(const ProcessContext& context) {
  Detection found;
  const auto rank = text_of(context, "RANK");
  const auto local = text_of(context, "LOCAL_RANK");
  if (rank && local) {
    found.notes.push_back("no scheduler's variables count, as ddprun runs in a rank of another launcher (" +
                          shown("RANK", *rank) + ", " + shown("LOCAL_RANK", *local) + ")");
    return found;
  }
  find_starter(context, found);
  find_platform(context, found);
  return found;
}

std::optional<std::string> text_of(const ProcessContext& context, const std::string& name) {
  auto value = context.variable(name);
  if (value && value->empty()) value.reset();
  return value;
}

bool has(const ProcessContext& context, const std::string& name) {
  return text_of(context, name).has_value();
}

std::string shown(std::string_view name, std::string_view value) {
  const std::string_view front = beginning(value, kMostShown);
  return std::string(name) + "=" + printable(front) + (front.size() < value.size() ? "..." : "");
}

std::optional<Sourced<int>> number_of(const ProcessContext& context, const std::string& name, int lowest, int highest) {
  const auto text = text_of(context, name);
  return text ? std::optional(parse(name, *text, lowest, highest)) : std::nullopt;
}

Sourced<int> required(const ProcessContext& context, const std::string& name, const std::string& seen, int lowest,
                      int highest) {
  const auto text = text_of(context, name);
  if (!text) throw std::invalid_argument(name + " is not set although " + seen + " is");
  return parse(name, *text, lowest, highest);
}

Sourced<std::string> sourced_text(const std::string& name, const std::string& value) {
  return {value, shown(name, value)};
}

void read_nodes(const ProcessContext& context, const std::string& name, const std::string& index,
                ScheduledPlace& place) {
  place.nnodes = required(context, name, index, 1, kMostScheduledNodes);
  place.node_rank = required(context, index, name, 0, kMostScheduledNodes);
  if (place.node_rank->value >= place.nnodes->value) {
    throw std::invalid_argument(place.node_rank->why + " is not below " + place.nnodes->why);
  }
}

}  // namespace launcher
