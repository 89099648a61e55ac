// The coordinator of a job with a fixed number of nodes. It runs in the launcher that hosts the store, checks that all
// launchers were started with the same options, and assigns ranks to each node.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "launcher/nodes/rendezvous/roster.h"
#include "launcher/nodes/rendezvous/round_coordinator.h"
#include "launcher/nodes/torchrun/torchrun_peers.h"

namespace launcher {

class Coordinator : public RoundCoordinator {
 public:
  Coordinator(EventLoop& loop, Messages& messages, CoordinatorOptions options);

  void refuse(const JoinFailure& reason) override;
  bool has_informed_all() const override;

 protected:
  void begin_joining() override;
  void on_hello(Id id, const control::Hello& hello) override;
  void on_ready(Id id, const control::Ready& ready) override;
  void on_leaving(Id id, const control::Leaving& leaving) override;
  void on_gone(Id id, const CoordinatorLinks::Loss& loss) override;
  std::string name(Id id) const override { return roster_.name(id); }
  void forget_round() override { torchrun_.reset(); }
  int size() const override { return options_.host.nnodes; }
  bool is_end_counted_elsewhere() override;

 private:
  void expect_torchrun();
  void on_duplicate_foreign_node(int node);
  void start_when_complete();
  void start();
  void print_missing_nodes();
  void on_join_timeout();

  Roster roster_;
  std::unique_ptr<TorchrunPeers> torchrun_;  // only in the first round
  JoinFailure refusal_;
  std::set<Id> informed_;  // nodes that received the refusal
};

}  // namespace launcher
