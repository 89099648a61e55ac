#include "launcher/nodes/rendezvous/ranks_store.h"

#include <utility>

namespace launcher {
namespace {

constexpr const char* kLoopback = "127.0.0.1";  // where a proxy listens

}  // namespace

RanksStore::RanksStore(EventLoop& loop, Messages& messages, const Options& options, const RendezvousInfo& info,
                       std::function<bool(std::uint16_t peer_port)> on_connection)
    : use_(options.store_proxy), master_addr_(info.master_addr), master_port_(info.master_port) {
  if (use_ == Options::StoreProxy::kOff || !info.store_channel) return;
  proxy_.emplace(loop, messages,
                 store::ProxyOptions{.store_channel = info.store_channel, .on_connection = std::move(on_connection)});
}

void RanksStore::describe(JobEnvironment& environment) const {
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

std::vector<std::uint16_t> RanksStore::ports() const {
  std::vector<std::uint16_t> ports = {static_cast<std::uint16_t>(master_port_)};
  if (proxy_) ports.push_back(proxy_->port());
  return ports;
}

void RanksStore::release() {
  if (proxy_) proxy_->release();
}

}  // namespace launcher
