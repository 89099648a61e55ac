// How the launchers of one job meet: where the ranks' store is and which ranks each node has, who failed first, and
// when all may go. One implementation for each way to meet; rendezvous_kinds.h lists them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/nodes/rendezvous/rendezvous_settings.h"
#include "launcher/nodes/store/store_channel.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher {

// What a round has agreed on.
struct RendezvousInfo {
  NodePlace place{};
  std::string master_addr{};
  int master_port = 0;
  std::shared_ptr<store::StoreChannel> store_channel{};  // to the store, where another node's ddprun hosts it
  std::string own_address{};                             // this node's, as the others see it; "" when that is not known
  std::optional<int> restart_count = std::nullopt;       // that all nodes agree on, where a node may not know it
};

// Nothing here blocks: what takes time happens in the event loop. All times have limits, which the implementation
// keeps.
class Rendezvous {
 public:
  Rendezvous() = default;
  virtual ~Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Begins round number `restart_count`, with a fresh store, and forgets the one before. Throws LaunchError when the
  // store cannot be opened here.
  virtual void begin_round(int restart_count) = 0;
  // What the round has agreed on, once every node has arrived.
  virtual const std::optional<RendezvousInfo>& info() const = 0;
  // Why the nodes could not meet; then they never will in this round. Others may still have to be told, until
  // has_left().
  virtual std::optional<JoinFailure> join_failure() const = 0;
  // The ranks' store of this round, null where another process hosts it.
  virtual store::StoreServer* store() = 0;

  // The round's ranks have been started: from now on this launcher answers at once.
  virtual void ranks_started() = 0;
  // Every node will begin another round when this one ends by a failure that is not final.
  virtual bool can_restart() const = 0;
  // can_restart() has counted the restarts already: the nodes do not have to.
  virtual bool counts_restarts() const { return false; }

  // Tells node `to`, which may be this one, or all others with control::kEveryNode, what reaches their
  // RendezvousSettings::on_word while the round runs. It may get lost.
  virtual void tell(int /*to*/, std::string /*text*/) {}
  // Tells the other nodes that this one is being stopped, and why; its number is filled in. Whose failure was the job's
  // first is then known in first_failure(). Before all have met the job ends, unless this node may return.
  virtual void announce(FailureNotice notice) = 0;
  virtual const std::optional<FailureNotice>& first_failure() const = 0;

  // Before leave(): what it means that this node's ranks have ended as they have if somebody stopped the job: 0, 85
  // (all saved), or 128 and more. Of all nodes' together agreed_status() is made, by the time has_left().
  virtual void report_stop(int /*status*/) {}
  virtual std::optional<int> agreed_status() const { return std::nullopt; }

  // This node's ranks have all ended. has_left() is true once the launcher may end, and its store with it: when every
  // node's ranks have ended, or every node knows of the first failure, or the time for that is over.
  virtual void leave(bool ended_well) = 0;
  virtual bool has_left() const = 0;

  // This launcher is about to end, for whatever reason. Where the others can continue without it, they are enabled to:
  // at the latest when has_departed().
  virtual void depart() {}
  virtual bool has_departed() const { return true; }
};

}  // namespace launcher
