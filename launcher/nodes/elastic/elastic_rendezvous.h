// --nnodes MIN:MAX: all nodes that are present meet again for each round, and one of them coordinates.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launcher/nodes/elastic/coordinator_discovery.h"
#include "launcher/nodes/elastic/elastic_coordinator.h"
#include "launcher/nodes/rendezvous/member.h"
#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/options.h"

namespace launcher::elastic {

class ElasticRendezvous : public Rendezvous {
 public:
  // See RendezvousKind. This is for an address that all nodes know.
  static std::string option_conflict(const Options& options);

  ElasticRendezvous(EventLoop& loop, Messages& messages, RendezvousSettings settings);
  ~ElasticRendezvous() override;

  void begin_round(int restart_count) override;
  const std::optional<RendezvousInfo>& info() const override { return info_; }
  std::optional<JoinFailure> join_failure() const override;
  store::StoreServer* store() override { return store_ ? &*store_ : nullptr; }
  void ranks_started() override { answer_immediately(true); }
  bool counts_restarts() const override { return true; }
  bool can_restart() const override;
  void send_text(int to, std::string text) override {
    if (member_) member_->send_text(to, std::move(text));
  }
  void announce(FailureNotice notice) override;
  const std::optional<FailureNotice>& first_failure() const override;
  void leave(bool ended_well) override;
  bool has_left() const override;
  void hand_over_coordination() override;
  bool has_handed_over() const override { return !discovery_ || discovery_->is_release_done(); }

 protected:
  virtual std::unique_ptr<CoordinatorDiscovery> make_discovery(CoordinatorDiscovery::Callbacks callbacks);
  virtual std::string backend() const { return "c10d"; }

  EventLoop& loop_;
  Messages& messages_;
  const RendezvousSettings settings_;

 private:
  void search();
  void host(const ListenAt& where, const History& history);
  void open_store();
  void join(UniqueFd fd);
  bool searches_again(const std::string& reason);
  void search_again();
  void watch_search();
  void set_info(const control::Start& start);
  void answer_immediately(bool does);
  bool was_excluded() const;
  bool can_return() const;
  control::Hello hello() const;
  std::chrono::milliseconds timeout() const;

  std::unique_ptr<CoordinatorDiscovery> discovery_;
  ListenAt listen_at_{};
  int round_ = 0;
  bool answers_immediately_ = false;
  bool has_printed_missing_nodes_ = false;  // in this search
  std::chrono::milliseconds join_timeout_{};
  bool is_search_after_loss_ = false;  // this search is for a coordinator that was lost
  bool has_lost_coordinator_ = false;  // the coordinator was silent, and may be reachable again soon
  bool was_replaced_ = false;
  bool has_taken_part_ = false;              // true after the first round with this node
  std::optional<store::StoreServer> store_;  // the ranks' store in this round
  std::unique_ptr<ElasticCoordinator> coordinator_;
  std::unique_ptr<Member> member_;
  std::optional<RendezvousInfo> info_;
  std::optional<JoinFailure> join_failure_;  // set while there is no member
  bool is_leaving_ = false;
  EventLoop::Clock::time_point leave_deadline_{};
  EventLoop::Timer leave_timer_{loop_};
  EventLoop::Timer search_timer_{loop_};
  EventLoop::Timer search_again_timer_{loop_};
};

class EtcdRendezvous : public ElasticRendezvous {
 public:
  static std::string option_conflict(const Options& options);

  using ElasticRendezvous::ElasticRendezvous;

 protected:
  std::unique_ptr<CoordinatorDiscovery> make_discovery(CoordinatorDiscovery::Callbacks callbacks) override;
  std::string backend() const override { return "etcd"; }
};

}  // namespace launcher::elastic
