// The rendezvous of a job on one node: nobody to wait for, a store on loopback.
#pragma once

#include <optional>
#include <string>

#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/messages.h"
#include "launcher/plan/options.h"

namespace launcher {

class SingleNode : public Rendezvous {
 public:
  // See RendezvousKind.
  static std::string option_conflict(const Options& options);

  SingleNode(EventLoop& loop, Messages& messages, RendezvousSettings settings);

  void begin_round(int restart_count) override;
  const std::optional<RendezvousInfo>& info() const override { return info_; }
  std::optional<JoinFailure> join_failure() const override { return std::nullopt; }
  store::StoreServer* store() override { return store_ ? &*store_ : nullptr; }
  void ranks_started() override {}
  bool can_restart() const override { return true; }
  void announce(FailureNotice /*notice*/) override {}
  const std::optional<FailureNotice>& first_failure() const override { return first_failure_; }
  void leave(bool /*ended_well*/) override {}
  bool has_left() const override { return true; }

 private:
  EventLoop& loop_;
  Messages& messages_;
  RendezvousSettings settings_;
  std::optional<store::StoreServer> store_;
  std::optional<RendezvousInfo> info_;
  std::optional<FailureNotice> first_failure_;  // there is nobody to tell of one
};

}  // namespace launcher
