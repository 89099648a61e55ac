#include "launcher/nodes/rendezvous/rendezvous_settings.h"

#include <algorithm>

#include "launcher/os/system/host_name.h"
#include "launcher/plan/outcome/describe.h"

namespace launcher {

std::string within_join_timeout(std::chrono::milliseconds join_timeout) {
  return " within the " + seconds_text(join_timeout) + " of --join_timeout";
}

RendezvousSettings rendezvous_settings(const Options& options, const JobEnvironment& environment) {
  RendezvousSettings settings{
      .run_id = environment.run_id,
      .nnodes = options.nnodes,
      .elastic = options.elastic,
      .host = options.local_addr.empty() ? host_name() : options.local_addr,
      .local_addr = options.local_addr,
      .node_rank = options.node_rank,
      .local_world_size = std::max(options.nproc_per_node, 1),  // not known yet where there is trouble
      .max_restarts = options.max_restarts,
      .role = options.role,
      .master_addr = environment.master_addr,
      .has_master_addr = options.has_master_addr,
      .master_port = environment.master_port,
      .agent_store = environment.agent_store,
      .node_order = options.order_by_host ? NodeOrder::kHostName : NodeOrder::kArrival,
      .join_timeout = options.join_timeout,
      .node_timeout = options.node_timeout};
  if (options.nnodes > 1 && !options.secret_file.empty()) settings.secret = control::Secret::read(options.secret_file);
  return settings;
}

}  // namespace launcher
