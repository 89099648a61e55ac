// Discovery at an address that all nodes know. The launcher on that host that can listen at its port coordinates until
// the job ends. A store at that port contains the port on which the launcher accepts the others.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/nodes/elastic/coordinator_discovery.h"
#include "launcher/nodes/rendezvous/coordinator_search.h"
#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/address.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"

namespace launcher::elastic {

class EndpointDiscovery : public CoordinatorDiscovery {
 public:
  // References must outlive the place.
  EndpointDiscovery(EventLoop& loop, Messages& messages, const RendezvousSettings& settings, Callbacks callbacks);

  void search(bool anew, bool has_taken_part) override;
  void announce(std::uint16_t control_port) override;
  // Does nothing, as this coordinator has no successor.
  void record(const History& /*history*/, Change /*change*/, const std::optional<JoinFailure>& /*end*/) override {}
  bool is_release_done() const override { return true; }
  bool is_lasting() const override { return false; }
  std::chrono::milliseconds search_timeout() const override;
  std::string host() const override { return settings_.master_addr; }
  std::string name() const override;
  std::string problem() const override { return search_ ? search_->problem() : problem_; }
  std::string advice() const override { return "is ddprun running there, and are address and port right?"; }

 private:
  void on_resolved(const std::vector<SocketAddress>& addresses);
  void resolve();
  bool try_to_host(const std::vector<SocketAddress>& addresses);
  void find();

  EventLoop& loop_;
  Messages& messages_;
  const RendezvousSettings& settings_;
  Callbacks callbacks_;
  std::unique_ptr<AddressLookup> lookup_;
  std::optional<store::StoreServer> store_;  // exists while this launcher coordinates
  std::string problem_;
  std::unique_ptr<CoordinatorSearch> search_;
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher::elastic
