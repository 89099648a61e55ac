// How the launchers of one job meet: where the ranks' store is and which ranks each node has, who failed first, and
// when all may go. One implementation for each way to meet; rendezvous_kinds.h lists them.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launcher/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"
#include "launcher/store/store_server.h"

namespace launcher {

// What a launcher brings to the rendezvous.
struct RendezvousSettings {
  std::string run_id = "none";
  int nnodes = 1;
  int node_rank = 0;
  int local_world_size = 1;
  std::string role = "default";
  std::string master_addr{};                        // where the user wants the ranks' store
  int master_port = 0;                              // 0: a free one
  bool agent_store = true;                          // false: rank 0 hosts the store
  std::chrono::milliseconds join_timeout{900'000};  // for all nodes to arrive
  store::ServerOptions store{};                     // its callbacks, where this launcher hosts the store
  // Called when another node reports the first failure of the job, or cannot be reached any more.
  std::function<void(const FailureNotice&)> on_failure{};
};

// What a round has agreed on.
struct RendezvousInfo {
  NodePlace place{};
  std::string master_addr{};
  int master_port = 0;
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
  // Why the nodes could not meet; then they never will in this round.
  virtual std::optional<std::string> join_failure() const = 0;
  // The ranks' store of this round, null where another process hosts it.
  virtual store::StoreServer* store() = 0;

  // Tells the other nodes that this one is being stopped, and why. Whose failure was the job's first is then known in
  // first_failure(). Before the nodes have met nobody is told; if they meet after all, they are then.
  virtual void announce(int exit_status, const std::string& text) = 0;
  virtual const std::optional<FailureNotice>& first_failure() const = 0;

  // This node's ranks have all ended. has_left() is true once the launcher may end, and its store with it: when every
  // node's ranks have ended, or every node knows of the first failure, or the time for that is over.
  virtual void leave(bool ended_well) = 0;
  virtual bool has_left() const = 0;
};

}  // namespace launcher
