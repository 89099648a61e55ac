// --rdzv_backend c10d: the same command on each node, without node numbers. The launcher that has the address of
// --rdzv_endpoint and can listen at its port hosts the store. The nodes are numbered in the order of arrival, or by
// host names. Only ddprun nodes can take part, because torchrun's nodes exchange their state as a Python pickle.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/nodes/rendezvous/static_rendezvous.h"
#include "launcher/nodes/store/store_client.h"
#include "launcher/os/network/address.h"

namespace launcher {

class EndpointRendezvous : public StaticRendezvous {
 public:
  static std::string option_conflict(const Options& options);

  using StaticRendezvous::StaticRendezvous;

  void begin_round(int restart_count) override;

 protected:
  void on_resolved(const std::vector<SocketAddress>& addresses) override;
  void begin_search() override;
  bool may_host() const override { return true; }
  void on_foreign_store() override;
  NodeOrder order() const override { return settings_.node_order; }
  int own_number() const override { return control::kAnyNode; }

 private:
  void host_or_search(const std::vector<SocketAddress>& addresses);
  void await_name(EventLoop::Clock::duration time, bool is_last);

  EventLoop::Timer timer_{loop_};
  EventLoop::Timer name_timer_{loop_};       // runs until the endpoint's name is resolved
  std::optional<store::StoreClient> watch_;  // detects a torchrun node
};

}  // namespace launcher
