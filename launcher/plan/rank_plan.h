// The plan of what to start on this node, made before anything is started: each rank's place, variables and files. It
// is used to start a job and to show it (--dry_run). Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/machine/cpu_binding.h"
#include "launcher/plan/log_layout.h"
#include "launcher/plan/options.h"
#include "launcher/plan/program.h"
#include "launcher/plan/rank_assignment.h"
#include "launcher/plan/resources.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

struct RankPlan {
  RankPlace place{};
  std::vector<std::string> variables{};  // in addition to inherited_entries()
  std::string error_file{};
  std::optional<Program> program{};     // if it differs from that of all ranks
  bool in_terminal = false;             // reads and writes ddprun's terminal
  std::optional<CpuBinding> binding{};  // unset: every CPU that ddprun may use
};

// The environment that the ranks of attempt number `attempt` share. The store's port is the requested one; 0 means a
// free one. `random_id` is the name of a job to which the user gave none. `cpus`: how many CPUs this node may use.
JobEnvironment plan_environment(const Options& options, int attempt, const std::string& random_id, int cpus);

// Returns one plan for each local rank of this node. `node` is the node's place in the job; `resources` are assigned to
// it.
std::vector<RankPlan> plan_ranks(const Options& options, const Program& program, const JobEnvironment& environment,
                                 const std::vector<std::string>& inherited, const NodePlace& node,
                                 const Resources& resources, const LogLayout& layout);

// The place of this node if every node has as many ranks as this one.
NodePlace place_with_equal_nodes(const Options& options);

std::vector<std::string> current_environment();

}  // namespace launcher
