// The nodes of a job that one command starts: its hosts with the ranks of each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/options.h"

namespace launcher {

// deepspeed's --include and --exclude: which hosts of a list take part, and which of their slots.
// `include` and `exclude` are "HOST[:SLOT,...]@..."; at most one of them is not empty. With `include` the hosts that it
// names remain, with `exclude` the others; where slots are named, a host keeps or loses those, its `gpus` are the ones
// that remain, and it has as many ranks. Throws LaunchError for a host or a slot that is not there, and when nothing
// remains.
std::vector<HostSlots> select_hosts(std::vector<HostSlots> hosts, const std::string& include,
                                    const std::string& exclude);

struct JobNode {
  std::string host;  // as the user wrote it
  bool is_local = false;
  int ranks = 1;                    // or Options::kOnePerGpu and the like, which the host itself counts
  std::vector<std::string> gpus{};  // for its --gpus; empty: all

  bool operator==(const JobNode&) const = default;
};

using IsLocal = std::function<bool(const std::string& host)>;

// One node for each host, in their order, and one for all hosts that are this machine. `-n N` counts the ranks of all
// nodes, as mpirun's and horovodrun's, and fills one host after the other; --nproc_per_node those of each; without them
// all slots are taken. Throws LaunchError when there is no room for so many. Pure.
std::vector<JobNode> plan_nodes(std::vector<HostSlots> hosts, const Options& options, const IsLocal& is_local);

// The same for -H, --hostfile, --include and --exclude; empty when none of them was given.
std::vector<JobNode> job_nodes(const Options& options);

}  // namespace launcher
