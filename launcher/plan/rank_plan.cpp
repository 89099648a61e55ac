#include "launcher/plan/rank_plan.h"

#include <unistd.h>

#include "launcher/os/machine/usable_cpus.h"
#include "launcher/os/system/signals.h"

namespace launcher {
namespace {

int default_port(const Options& options) {
  if (options.uses_etcd()) return Options::kEtcdPort;
  return options.rdzv_backend == "c10d" ? Options::kC10dPort : Options::kStaticPort;
}

}  // namespace

JobEnvironment plan_environment(const Options& options, int attempt, const std::string& random_id, int cpus) {
  const bool several_nodes = options.nnodes > 1;
  JobEnvironment environment{.role = options.role,
                             .run_id = options.rdzv_id,
                             .master_addr = several_nodes ? options.master_addr : Options::kLoopback,
                             .master_port = options.master_port.value_or(several_nodes ? default_port(options) : 0),
                             .restart_count = attempt,
                             .max_restarts = options.max_restarts,
                             .default_omp_threads = default_omp_threads(cpus, options.nproc_per_node),
                             .exported = options.exported,
                             .stop_signals = signal_list(options.stop_signals),
                             .gpus = options.gpus,
                             .virtual_local_rank = options.virtual_local_rank,
                             .agent_store = options.store == Options::Store::kLauncher,
                             .interface = options.interface};
  if (environment.run_id.empty()) environment.run_id = several_nodes ? "none" : random_id;
  return environment;
}

std::vector<RankPlan> plan_ranks(const Options& options, const Program& program, const JobEnvironment& environment,
                                 const std::vector<std::string>& inherited, const NodePlace& node,
                                 const Resources& resources, const LogLayout& layout) {
  const NodeRanks& ranks = node.ranks;
  std::vector<RankPlan> plans;
  plans.reserve(static_cast<std::size_t>(options.nproc_per_node));
  for (int local_rank = 0; local_rank < options.nproc_per_node; ++local_rank) {
    const RankPlace place{.rank = ranks.first_rank + local_rank,
                          .local_rank = local_rank,
                          .world_size = ranks.world_size,
                          .local_world_size = options.nproc_per_node,
                          .group_rank = node.group_rank,
                          .group_world_size = node.group_world_size,
                          .role_rank = ranks.first_role_rank + local_rank,
                          .role_world_size = ranks.role_world_size};
    const std::string error_file = layout.error_file(environment.restart_count, place);
    plans.push_back({.place = place,
                     .variables = worker_variables(inherited, environment, place, error_file),
                     .error_file = error_file,
                     .program = program_of_rank(program, options, place)});
    if (!resources.bindings.empty()) plans.back().binding = resources.bindings[static_cast<std::size_t>(local_rank)];
  }
  return plans;
}

NodePlace place_with_equal_nodes(const Options& options) {
  const int first = options.node_rank * options.nproc_per_node;
  const int all = options.nnodes * options.nproc_per_node;
  return {options.node_rank, options.nnodes, {first, all, first, all}};
}

std::vector<std::string> current_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace launcher
