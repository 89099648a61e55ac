// torchrun's static rendezvous: each node is told its number and the address of node 0, which hosts the store for the
// launchers and the ranks of all. ddprun and torchrun nodes can be mixed.
#pragma once

#include <optional>
#include <string>

#include "launcher/plan/options.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/static_round.h"
#include "launcher/store/store_server.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/messages.h"

namespace launcher {

class StaticRendezvous : public Rendezvous {
 public:
  // See RendezvousKind.
  static std::string objection(const Options& options);

  StaticRendezvous(EventLoop& loop, Messages& messages, RendezvousSettings settings);
  ~StaticRendezvous() override;

  void begin_round(int restart_count) override;
  const std::optional<RendezvousInfo>& info() const override { return info_; }
  std::optional<std::string> join_failure() const override { return round_->join_failure(); }
  store::StoreServer* store() override { return store_ ? &*store_ : nullptr; }
  void announce(int exit_status, const std::string& text) override;
  const std::optional<FailureNotice>& first_failure() const override { return round_->first_failure(); }
  void leave(bool ended_well) override;
  bool has_left() const override;

 private:
  void on_joined(const NodeRanks& ranks);
  void on_first_failure(const FailureNotice& notice, bool is_own);
  void leave_by(EventLoop::Clock::time_point deadline);

  EventLoop& loop_;
  Messages& messages_;
  RendezvousSettings settings_;
  std::optional<store::StoreServer> store_;
  int master_port_ = 0;
  std::optional<StaticRound> round_;
  std::optional<RendezvousInfo> info_;
  std::optional<FailureNotice> unannounced_;  // until the nodes have met
  EventLoop::Clock::time_point leave_deadline_{};
  std::optional<EventLoop::TimerId> leave_timer_;  // while it runs, there is time to leave in good order
};

}  // namespace launcher
