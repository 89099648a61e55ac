// How the ranks of this node reach the job's store in one attempt: directly, or by a proxy of their own where another
// node's ddprun hosts it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/nodes/store/store_proxy.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/messages.h"
#include "launcher/plan/options.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

class RanksStore {
 public:
  // `info`: what the nodes have agreed on. `on_connection`: as store::ServerOptions has it, for those of a proxy.
  // Throws LaunchError when there is no port for a proxy. `loop` and `messages` must outlive this.
  RanksStore(EventLoop& loop, Messages& messages, const Options& options, const RendezvousInfo& info,
             std::function<bool(std::uint16_t peer_port)> on_connection);

  // Fills in where the ranks find the store.
  void describe(JobEnvironment& environment) const;
  // Those to which ranks may connect: their store's, and the proxy's.
  std::vector<std::uint16_t> ports() const;
  // Reads from the connections that on_connection wanted to be held.
  void release();

 private:
  Options::StoreProxy use_;
  std::string master_addr_;
  int master_port_;
  std::optional<store::StoreProxy> proxy_;
};

}  // namespace launcher
