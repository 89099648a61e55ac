// The nodes of a job that is started by one command: its hosts, with the ranks of each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/options.h"

namespace launcher {

// Applies deepspeed's --include and --exclude, which select hosts of a list and their slots. `include` and `exclude`
// have the form "HOST[:SLOT,...]@..."; at most one of them is not empty. With `include` the named hosts remain, with
// `exclude` the others. If slots are named, a host keeps or loses these slots; its `gpus` are the remaining ones, and
// it has as many ranks. Throws LaunchError for an unknown host or slot, and when nothing remains.
std::vector<HostSlots> select_hosts(std::vector<HostSlots> hosts, const std::string& include,
                                    const std::string& exclude);

struct JobNode {
  std::string host;  // as the user wrote it
  bool is_local = false;
  int ranks = 1;                    // may be Options::kOnePerGpu or a similar value, which the host itself resolves
  std::vector<std::string> gpus{};  // for its --gpus; empty: all

  bool operator==(const JobNode&) const = default;
};

using IsLocal = std::function<bool(const std::string& host)>;

// Returns one node for each host, in their order, and one node for all hosts that are this machine. `-n N` counts the
// ranks of all nodes, as in mpirun and horovodrun, and fills one host after the other; --nproc_per_node counts the
// ranks of each node; without them all slots are used. Throws LaunchError when there are not enough slots. Pure.
std::vector<JobNode> plan_nodes(std::vector<HostSlots> hosts, const Options& options, const IsLocal& is_local);

// The same from the options -H, --hostfile, --include and --exclude; empty when none of them was given.
std::vector<JobNode> job_nodes(const Options& options);

}  // namespace launcher
