// Discovery with a key of etcd, which exists as long as the coordinator renews its lease. When the coordinator is lost,
// another launcher takes the key and continues the job (--rdzv_backend etcd).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "launcher/nodes/elastic/coordinator_discovery.h"
#include "launcher/nodes/elastic/coordinator_lease.h"
#include "launcher/nodes/elastic/etcd_api.h"
#include "launcher/nodes/elastic/etcd_keys.h"
#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/os/network/connector.h"
#include "launcher/os/system/event_loop.h"

namespace launcher::elastic {

class EtcdDiscovery : public CoordinatorDiscovery {
 public:
  // References must outlive the place.
  EtcdDiscovery(EventLoop& loop, const RendezvousSettings& settings, Callbacks callbacks);

  void search(bool anew, bool has_taken_part) override;
  void announce(std::uint16_t control_port) override { own_lease_.set_port(control_port); }
  void record(const History& history, Change change, const std::optional<JoinFailure>& end) override;
  bool is_release_done() const override { return own_lease_.is_release_done(); }
  bool is_lasting() const override { return true; }
  // As long as a coordinator without a connection to etcd keeps its role.
  std::chrono::milliseconds search_timeout() const override {
    return CoordinatorLease::lease_for(settings_.node_timeout);
  }
  std::string host() const override { return record_.host; }
  std::string name() const override;
  std::string problem() const override;
  std::string advice() const override;

 private:
  using Clock = EventLoop::Clock;

  void query();
  void query_later();
  void on_query_reply(const std::optional<EtcdOutcome>& outcome);
  void on_no_reply();
  bool is_only_foreign();
  void on_free(const EtcdOutcome& outcome);
  void on_occupied(const EtcdEntry& entry);
  void connect();
  void check_lost_coordinator(const EtcdEntry& entry);
  void on_time_left(std::chrono::seconds left);
  void take(std::vector<EtcdCondition> conditions);
  void coordinate(const std::optional<std::string>& history);

  EventLoop& loop_;
  const RendezvousSettings& settings_;
  Callbacks callbacks_;
  EtcdClient etcd_;
  CoordinatorLease own_lease_;
  std::unique_ptr<Connector> connector_;
  CoordinatorRecord record_;                    // the record that was found last, or this launcher's own
  std::string lost_token_;                      // identifies the lost coordinator, until it renews its lease
  std::set<std::string> own_tokens_;            // of all attempts to become the coordinator
  std::optional<Clock::time_point> first_end_;  // when its lease ends, as first seen
  std::unique_ptr<Connector> probe_;            // tests whether its address accepts connections
  int refusals_ = 0;
  Clock::time_point last_contact_{};                // with etcd, or with a host that refused the connection
  std::optional<Clock::time_point> foreign_since_;  // since when only another program has answered
  bool is_repeated_search_ = false;
  bool has_taken_part_ = false;
  std::string problem_;
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher::elastic
