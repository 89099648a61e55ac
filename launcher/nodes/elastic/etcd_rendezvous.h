// --rdzv_backend etcd, or etcd-v2: as ElasticRendezvous, with a coordinator that can be replaced.
#pragma once

#include <memory>
#include <string>

#include "launcher/nodes/elastic/elastic_rendezvous.h"
#include "launcher/plan/options.h"

namespace launcher::elastic {

class EtcdRendezvous : public ElasticRendezvous {
 public:
  // See RendezvousKind.
  static std::string option_conflict(const Options& options);

  using ElasticRendezvous::ElasticRendezvous;

 protected:
  std::unique_ptr<CoordinatorDiscovery> make_discovery(CoordinatorDiscovery::Callbacks callbacks) override;
  std::string backend() const override { return "etcd"; }
};

}  // namespace launcher::elastic
