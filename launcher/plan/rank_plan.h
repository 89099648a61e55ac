// What is to be started on this node, worked out before anything is: each rank's place, variables and files. Used to
// start a job and to show it (--dry_run). Pure.
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
  std::vector<std::string> variables{};  // on top of inherited_entries()
  std::string error_file{};
  std::optional<Program> program{};     // when it is not the one of all ranks
  bool in_terminal = false;             // reads and writes ddprun's terminal
  std::optional<CpuBinding> binding{};  // else every CPU that ddprun may use
};

// What the ranks of attempt number `attempt` share. The store's port is the one that was asked for, 0 for a free one.
// `random_id` names a job that the user gave no name. `cpus`: how many this node may use.
JobEnvironment plan_environment(const Options& options, int attempt, const std::string& random_id, int cpus);

// One plan per local rank of this node, which has its place `node` in the job and to which `resources` are assigned.
std::vector<RankPlan> plan_ranks(const Options& options, const Program& program, const JobEnvironment& environment,
                                 const std::vector<std::string>& inherited, const NodePlace& node,
                                 const Resources& resources, const LogLayout& layout);

// The place of this node when every node has as many ranks as this one.
NodePlace place_among_equals(const Options& options);

std::vector<std::string> current_environment();

}  // namespace launcher
