#include "launcher/nodes/rendezvous_kinds.h"

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/nodes/elastic/elastic_rendezvous.h"
#include "launcher/nodes/elastic/etcd_rendezvous.h"
#include "launcher/nodes/rendezvous/endpoint_rendezvous.h"
#include "launcher/nodes/rendezvous/single_node.h"
#include "launcher/nodes/rendezvous/static_rendezvous.h"

namespace launcher {
namespace {

template <typename Kind>
std::unique_ptr<Rendezvous> make(EventLoop& loop, Messages& messages, RendezvousSettings settings) {
  return std::make_unique<Kind>(loop, messages, std::move(settings));
}

constexpr RendezvousKind kSingleNode = {"", &SingleNode::objection, &make<SingleNode>};

// For a number of nodes that may change.
constexpr RendezvousKind kElastic = {"c10d", &elastic::ElasticRendezvous::objection, &make<elastic::ElasticRendezvous>};

// For several nodes. The first one is the default.
constexpr std::array kKinds = {
    RendezvousKind{"static", &StaticRendezvous::objection, &make<StaticRendezvous>},
    RendezvousKind{"c10d", &EndpointRendezvous::objection, &make<EndpointRendezvous>},
    RendezvousKind{"etcd", &elastic::EtcdRendezvous::objection, &make<elastic::EtcdRendezvous>},
    // torchrun's newer one, which has API v2. Here both use API v3.
    RendezvousKind{"etcd-v2", &elastic::EtcdRendezvous::objection, &make<elastic::EtcdRendezvous>},
};

}  // namespace

const RendezvousKind* find_rendezvous(const Options& options) {
  if (options.nnodes == 1) return &kSingleNode;
  const std::string& backend = options.rdzv_backend;
  if (options.elastic.is_on() && (backend.empty() || backend == "c10d" || backend == "static")) return &kElastic;
  if (options.rdzv_backend.empty()) return &kKinds.front();
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const RendezvousKind& kind) { return kind.name == options.rdzv_backend; });
  return found == kKinds.end() ? nullptr : &*found;
}

std::string rendezvous_names() {
  std::string names;
  for (const RendezvousKind& kind : kKinds) {
    const bool is_last = &kind == &kKinds.back();
    names.append(names.empty() ? "'" : is_last ? " or '" : ", '").append(kind.name).append("'");
  }
  return names;
}

}  // namespace launcher
