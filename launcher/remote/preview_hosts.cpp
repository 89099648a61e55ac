#include <algorithm>
#include <numeric>

#include "base/joined.h"
#include "launcher/os/system/shell_quote.h"
#include "launcher/plan/rank_plan.h"
#include "launcher/remote/commands.h"
#include "launcher/remote/job_plan.h"
#include "launcher/remote/job_start_message.h"
#include "launcher/remote/ssh_command.h"

namespace launcher::remote {
namespace {

std::string quoted(const std::vector<std::string>& arguments) {
  return ddp::detail::joined(arguments, " ", shell_quote);
}

// Shows only variables that are known here; those that a host determines itself are left out.
std::string rank_text(const Options& options, const std::vector<std::string>& inherited, const JobEnvironment& job,
                      const RankPlace& place, const std::string& host) {
  std::string text = "  rank " + std::to_string(place.rank) + " of " + std::to_string(place.world_size) +
                     " (local rank " + std::to_string(place.local_rank) + " on host " + host + ")\n";
  if (!options.program.empty()) text += "    command: " + quoted(options.program) + "\n";
  for (const std::string& entry : worker_variables(inherited, job, place, "<temporary folder>")) {
    const std::size_t equals = entry.find('=') + 1;
    const std::string name = entry.substr(0, equals);
    std::string value = entry.substr(equals);
    if (name == "OMP_NUM_THREADS=") value = "<its CPUs / its ranks>";
    if (name == "MASTER_PORT=" && value == "0") value = "<free port>";
    text += "    " + name + (value.starts_with('<') || value.empty() ? value : shell_quote(value)) + "\n";
  }
  return text;
}

}  // namespace

std::string preview_hosts(const Options& options, const std::vector<JobNode>& nodes,
                          const std::vector<std::string>& own) {
  check_for_hosts(options, nodes);
  const SshSettings ssh = ssh_settings(options);
  const bool are_counted = std::all_of(nodes.begin(), nodes.end(), [](const JobNode& node) { return node.ranks > 0; });
  const int world_size =
      std::accumulate(nodes.begin(), nodes.end(), 0, [](int sum, const JobNode& node) { return sum + node.ranks; });
  const std::string address = options.has_master_addr ? options.master_addr : "<address of " + nodes.front().host + ">";
  const auto inherited = forwarded_environment(own, options.exported);
  std::string text;
  int first_rank = 0;
  for (std::size_t number = 0; number < nodes.size(); ++number) {
    const JobNode& node = nodes[number];
    text += "host " + node.host + " (node " + std::to_string(number) + " of " + std::to_string(nodes.size()) + "), ";
    text += node.is_local ? "which is this machine\n" : "by: " + quoted(ssh_command(ssh, node.host)) + "\n";
    if (!are_counted) {
      text += "  ranks: <as many as it has " + std::string(node.ranks == Options::kOnePerCpu ? "CPUs" : "GPUs") + ">\n";
      continue;
    }
    Options of_node = options;
    of_node.nnodes = static_cast<int>(nodes.size());
    of_node.nproc_per_node = node.ranks;
    if (!node.gpus.empty()) of_node.gpus = node.gpus;
    JobEnvironment job = plan_environment(of_node, /*attempt=*/0, "<random>", /*cpus=*/1);
    if (nodes.size() > 1) {
      job.master_addr = address;
      job.master_port = options.master_port.value_or(0);
      if (options.rdzv_id.empty()) job.run_id = "<random>";
    }
    for (int local_rank = 0; local_rank < node.ranks; ++local_rank) {
      text += rank_text(options, inherited, job,
                        {.rank = first_rank + local_rank,
                         .local_rank = local_rank,
                         .world_size = world_size,
                         .local_world_size = node.ranks,
                         .group_rank = static_cast<int>(number),
                         .group_world_size = static_cast<int>(nodes.size()),
                         .role_rank = first_rank + local_rank,
                         .role_world_size = world_size},
                        node.host);
    }
    first_rank += node.ranks;
  }
  return text;
}

}  // namespace launcher::remote
