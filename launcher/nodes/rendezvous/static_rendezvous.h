// The rendezvous of several nodes at an address that all of them know. It is node 0's address (torchrun's static
// rendezvous, in which ddprun and torchrun nodes can be mixed), or the address of any node (--rdzv_backend c10d, for
// ddprun nodes only), and then the nodes need no numbers. The launcher at that address hosts the store for all ranks,
// and coordinates the others.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/nodes/rendezvous/coordinator.h"
#include "launcher/nodes/rendezvous/coordinator_search.h"
#include "launcher/nodes/rendezvous/duplicate_coordinator.h"
#include "launcher/nodes/rendezvous/member.h"
#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/nodes/torchrun/torchrun_round.h"
#include "launcher/os/network/address.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/options.h"

namespace launcher {

class StaticRendezvous : public Rendezvous {
 public:
  static std::string option_conflict(const Options& options);

  StaticRendezvous(EventLoop& loop, Messages& messages, RendezvousSettings settings);
  ~StaticRendezvous() override;

  void begin_round(int restart_count) override;
  const std::optional<RendezvousInfo>& info() const override { return info_; }
  std::optional<JoinFailure> join_failure() const override;
  store::StoreServer* store() override { return store_ ? &*store_ : nullptr; }
  void ranks_started() override { answer_immediately(true); }
  bool can_restart() const override;
  void send_text(int to, std::string text) override {
    if (member_) member_->send_text(to, std::move(text));
  }
  void announce(FailureNotice notice) override;
  const std::optional<FailureNotice>& first_failure() const override;
  void report_stop(int status) override;
  std::optional<int> agreed_status() const override;
  void leave(bool ended_well) override;
  bool has_left() const override;

 protected:
  // Called by a subclass that has decided that this launcher hosts the store.
  void host(const std::vector<SocketAddress>& addresses);
  void search();
  void resolve();
  // Called when the store is torchrun's.
  virtual void on_foreign_store();
  virtual NodeOrder order() const { return NodeOrder::kByNodeRank; }
  virtual int own_number() const { return settings_.node_rank; }
  // Searches for the launcher that hosts the store, or finds out whether this one hosts it. May be called again.
  virtual void begin_search();
  // Called in the first round, if this node may host the store, when its address is resolved.
  virtual void on_resolved(const std::vector<SocketAddress>& addresses);
  virtual bool may_host() const { return settings_.node_rank == 0; }
  void refuse(JoinFailure reason);
  std::string rendezvous_address() const;

  EventLoop& loop_;
  Messages& messages_;
  RendezvousSettings settings_;
  std::optional<store::StoreServer> store_;
  std::unique_ptr<Coordinator> coordinator_;

 private:
  void open_store();
  void print_join_hint();
  void search_duplicate();
  void on_taken_port(const std::string& problem);
  void answer_immediately(bool does);
  // How long this launcher may be silent: longer while it prepares or cleans up the ranks, because a slow disk may
  // delay it.
  std::chrono::milliseconds timeout() const {
    return answers_immediately_ ? settings_.node_timeout : std::chrono::milliseconds(30'000);
  }
  void join(UniqueFd fd);
  void set_info(const NodePlace& place);
  control::Hello hello() const;
  bool search_again(const std::string& reason);
  std::chrono::milliseconds remaining_join_time();
  void watch_search();
  void end_search();
  void on_failure(const FailureNotice& notice, bool is_own);
  void set_leave_deadline(EventLoop::Clock::time_point deadline);

  ListenAt listen_at_{};
  std::string own_address_{};
  std::unique_ptr<AddressLookup> lookup_;
  int master_port_ = 0;
  int round_ = 0;
  std::string launcher_id_ = random_id();
  bool answers_immediately_ = false;
  bool has_foreign_nodes_ = false;
  bool has_printed_missing_nodes_ = false;
  std::unique_ptr<CoordinatorSearch> search_;
  std::unique_ptr<DuplicateCoordinator> duplicate_;
  std::unique_ptr<Member> member_;
  std::unique_ptr<TorchrunRound> torchrun_;
  std::optional<RendezvousInfo> info_;
  std::optional<JoinFailure> join_failure_;  // set while there is neither a coordinator nor torchrun
  EventLoop::Clock::time_point leave_deadline_{};
  EventLoop::Timer leave_timer_{loop_};  // while it runs, the launcher waits for the others
  EventLoop::Timer search_timer_{loop_};
  std::optional<EventLoop::Clock::time_point> join_deadline_;  // of this node, for all its searches for node 0
};

}  // namespace launcher
