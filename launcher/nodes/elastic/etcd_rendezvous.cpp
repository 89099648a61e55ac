#include "launcher/nodes/elastic/etcd_rendezvous.h"

#include <utility>

#include "launcher/nodes/elastic/etcd_discovery.h"

namespace launcher::elastic {

std::string EtcdRendezvous::option_conflict(const Options& options) {
  const std::string backend = "--rdzv_backend " + options.rdzv_backend;
  if (!options.hosts.empty()) return "-H is for one node; with " + backend + " use -n";
  if (options.store == Options::Store::kRank0) return "--store rank0 works on one node only, not with " + backend;
  if (options.master_addr.empty()) return backend + ": --rdzv_endpoint must name the host of etcd";
  if (options.master_port == 0) return backend + ": --rdzv_endpoint needs etcd's port, not 0";
  return "";
}

std::unique_ptr<CoordinatorDiscovery> EtcdRendezvous::make_discovery(CoordinatorDiscovery::Callbacks callbacks) {
  return std::make_unique<EtcdDiscovery>(loop_, settings_, std::move(callbacks));
}

}  // namespace launcher::elastic
