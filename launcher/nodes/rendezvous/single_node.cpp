#include "launcher/nodes/rendezvous/single_node.h"

#include <utility>

#include "launcher/os/network/tcp_socket.h"

namespace launcher {

std::string SingleNode::option_conflict(const Options& options) {
  if (options.node_rank == 0) return "";
  return "--node_rank " + std::to_string(options.node_rank) +
         " is too large: with --nnodes 1 there is node 0 only; for several nodes give --nnodes";
}

SingleNode::SingleNode(EventLoop& loop, Messages& messages, RendezvousSettings settings)
    : loop_(loop), messages_(messages), settings_(std::move(settings)) {}

void SingleNode::begin_round(int restart_count) {
  info_.reset();
  store_.reset();
  int port = settings_.master_port;
  if (settings_.agent_store) {
    store::ServerOptions server = settings_.store;
    server.port = static_cast<std::uint16_t>(port);
    store_.emplace(loop_, messages_, std::move(server));
    port = store_->port();
    // No error: programs that do not meet need no store.
    if (const std::string problem = loopback_problem(); !problem.empty() && restart_count == 0)
      messages_.print(problem);
  } else if (port == 0) {
    port = free_port();
  }
  const NodePlace place = {.ranks = assign_ranks({{settings_.role, 0, settings_.local_world_size}}).front()};
  info_ = {.place = place, .master_addr = settings_.master_addr, .master_port = port};
}

}  // namespace launcher
