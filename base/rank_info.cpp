#include "ddprun/base/rank_info.h"

#include <charconv>
#include <stdexcept>

#include "base/schedulers/launcher_variables.h"
#include "base/schedulers/master_address.h"
#include "base/schedulers/slurm_step.h"

namespace ddp {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw std::invalid_argument(message);
}

int parse_int(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || text.empty() || value < low || value > high) {
    fail(name + "='" + text + "': expected a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

constexpr int kMaxRankCount = 1 << 20;

std::optional<int> read_int(const EnvironmentLookup& lookup, const std::string& name, int low, int high) {
  if (name.empty()) return std::nullopt;
  const auto text = lookup(name);
  if (!text) return std::nullopt;
  return parse_int(name, *text, low, high);
}

int require_int(const EnvironmentLookup& lookup, const std::string& name, const std::string& seen, int low) {
  const auto value = read_int(lookup, name, low, kMaxRankCount);
  if (!value) {
    fail(name + " is not set although " + seen + " is. Start the program with ddprun or torchrun, set " + name +
         ", or unset " + seen + " to run a single process.");
  }
  return *value;
}

void check_below(const std::string& name, int value, const std::string& bound_name, int bound) {
  if (value < bound) return;
  fail(name + "=" + std::to_string(value) + " but " + bound_name + "=" + std::to_string(bound) +
       ": expected 0 <= " + name + " < " + bound_name);
}

// Reads MASTER_ADDR and MASTER_PORT. They are required only if there are several ranks and the scheduler does not
// provide an address.
void read_master(const EnvironmentLookup& lookup, RankInfo& info) {
  const auto address = lookup("MASTER_ADDR");
  const auto port = lookup("MASTER_PORT");
  if (address) info.master_addr = *address;
  if (port) info.master_port = static_cast<uint16_t>(parse_int("MASTER_PORT", *port, 1, 65535));
  if (info.world_size == 1 || (!info.master_addr.empty() && port)) return;
  const auto derived = detail::master_address(lookup, info.source, info.world_size, info.local_world_size);
  if (info.master_addr.empty()) info.master_addr = derived.host;
  if (!port) info.master_port = derived.port;
  const std::string me = who(info) + ": ";
  const std::string advice =
      " Start the program with ddprun or torchrun, or set MASTER_ADDR and MASTER_PORT to rank 0's host and a free "
      "port." +
      derived.advice;
  if (info.master_addr.empty()) fail(me + "MASTER_ADDR is not set: the ranks cannot find each other." + advice);
  if (info.master_port == 0) fail(me + "MASTER_PORT is not set: the ranks cannot find each other." + advice);
}

// Rejects several ranks per pod if LOCAL_RANK is not set. Operators that start pods store the number of each pod in the
// variables of torchrun. A program that they start without a launcher is therefore the only rank of its pod, even if
// more ranks per pod were requested.
void refuse_pods(const EnvironmentLookup& lookup, const RankInfo& info) {
  for (const char* name : {"PET_NPROC_PER_NODE", "NPROC_PER_NODE"}) {
    const auto ranks = lookup(name);
    if (!ranks || ranks->empty() || *ranks == "1") continue;
    fail(who(info) + ": RANK and WORLD_SIZE number the pods, as LOCAL_RANK is not set, but " + name + "='" + *ranks +
         "' asks for more than one rank in each. Start the program with ddprun, which reads these variables, or set "
         "LOCAL_RANK and LOCAL_WORLD_SIZE too.");
  }
}

// Reads the number of tasks on this node, which Slurm gives as a list for all nodes.
void read_slurms_tasks(const EnvironmentLookup& lookup, RankInfo& info) {
  const auto step = detail::slurm_step(lookup);
  if (!step) return;
  info.local_world_size = step->tasks_on_node;
  check_below("SLURM_LOCALID", info.local_rank, "this node's number in SLURM_STEP_TASKS_PER_NODE",
              info.local_world_size);
}

void read_family(const EnvironmentLookup& lookup, const LauncherVariables& family, RankInfo& info) {
  const std::string rank_name = family.rank;
  const std::string world_name = family.world_size;
  const bool has_rank = lookup(rank_name).has_value();
  info.source = family.launcher;
  info.rank = require_int(lookup, rank_name, world_name, 0);
  info.world_size = require_int(lookup, world_name, has_rank ? rank_name : world_name, 1);
  check_below(rank_name, info.rank, world_name, info.world_size);

  const auto local_rank = read_int(lookup, family.local_rank, 0, kMaxRankCount);
  if (rank_name == "RANK" && !local_rank) refuse_pods(lookup, info);
  const auto local_world = read_int(lookup, family.local_world_size, 1, kMaxRankCount);
  // Without a local rank, one rank per node is assumed: env:// of torch.distributed requires only RANK and WORLD_SIZE.
  info.local_rank = local_rank.value_or(0);
  info.local_world_size = local_world.value_or(local_rank ? *local_rank + 1 : 1);
  if (!local_world) {
    check_below(family.local_rank, info.local_rank, world_name, info.world_size);
    if (info.source == "Slurm") read_slurms_tasks(lookup, info);
    return;
  }
  check_below(family.local_rank, info.local_rank, family.local_world_size, info.local_world_size);
  if (info.local_world_size > info.world_size) {
    fail(std::string(family.local_world_size) + "=" + std::to_string(info.local_world_size) + " is larger than " +
         world_name + "=" + std::to_string(info.world_size));
  }
}

}  // namespace

std::string who(const RankInfo& info) {
  std::string name = "rank " + std::to_string(info.rank) + " of " + std::to_string(info.world_size);
  if (!info.parent.empty()) name += " in a sub-group (" + info.parent + ")";
  return name;
}

EnvironmentLookup process_environment() {
  return environment_variable;
}

RankInfo rank_info_from_environment(const EnvironmentLookup& lookup) {
  RankInfo info;
  if (const LauncherVariables* family = launcher_variables(lookup)) {
    read_family(lookup, *family, info);
    read_master(lookup, info);
  }
  info.agent_store = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  const bool is_srun = info.source == "Slurm";
  info.restart_count =
      read_int(lookup, is_srun ? "SLURM_RESTART_COUNT" : "TORCHELASTIC_RESTART_COUNT", 0, kMaxRankCount).value_or(0);
  return info;
}

}  // namespace ddp
