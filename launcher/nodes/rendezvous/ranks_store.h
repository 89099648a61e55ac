// How the ranks of this node reach the job's store in one attempt: directly, or through a proxy if another node's
// ddprun hosts the store.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/nodes/store/store_proxy.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/options.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

inline constexpr const char* kLoopback = "127.0.0.1";  // the proxy listens here

class RanksStore {
 public:
  // `info`: what the nodes have agreed on. `on_connection`: see store::ServerOptions; called for connections to a
  // proxy. Throws LaunchError when there is no port for a proxy. `loop` and `messages` must outlive this.
  RanksStore(EventLoop& loop, Messages& messages, const Options& options, const RendezvousInfo& info,
             std::function<bool(std::uint16_t peer_port)> on_connection)
      : use_(options.store_proxy), master_addr_(info.master_addr), master_port_(info.master_port) {
    if (use_ == Options::StoreProxy::kOff || !info.store_channel) return;
    proxy_.emplace(loop, messages,
                   store::ProxyOptions{.store_channel = info.store_channel, .on_connection = std::move(on_connection)});
  }

  // Sets the store's address in the environment of the ranks.
  void describe(JobEnvironment& environment) const {
    environment.master_addr = master_addr_;
    environment.master_port = master_port_;
    environment.store.clear();
    environment.store_proxy.clear();
    if (!proxy_) return;
    environment.store = master_addr_ + ":" + std::to_string(master_port_);
    environment.store_proxy = std::string(kLoopback) + ":" + std::to_string(proxy_->port());
    if (use_ != Options::StoreProxy::kAll) return;
    environment.master_addr = kLoopback;
    environment.master_port = proxy_->port();
  }
  // The ports to which ranks may connect: that of the store, and that of the proxy.
  std::vector<std::uint16_t> ports() const {
    std::vector<std::uint16_t> ports = {static_cast<std::uint16_t>(master_port_)};
    if (proxy_) ports.push_back(proxy_->port());
    return ports;
  }
  // Begins to read from the connections for which on_connection returned true.
  void release() {
    if (proxy_) proxy_->release();
  }

 private:
  Options::StoreProxy use_;
  std::string master_addr_;
  int master_port_;
  std::optional<store::StoreProxy> proxy_;
};

}  // namespace launcher
