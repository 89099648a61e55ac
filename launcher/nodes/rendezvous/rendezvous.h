// How the launchers of one job meet: where the ranks' store is and which ranks each node has, who failed first, and
// when all may go. One implementation for each way to meet; rendezvous_kinds.h lists them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/rendezvous/roster.h"
#include "launcher/nodes/store/store_channel.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/side_channel.h"
#include "launcher/os/system/host_name.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/describe.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

struct RendezvousSettings {
  std::string run_id = "none";
  int nnodes = 1;
  ElasticOptions elastic{};
  std::string host{};        // what this node is called
  std::string local_addr{};  // how the others reach it; "": not said
  int node_rank = 0;
  int local_world_size = 1;
  int max_restarts = 0;
  std::string role = "default";
  std::string master_addr{};                              // where the user wants the ranks' store
  bool has_master_addr = true;                            // false: the user said nothing, and others may know more
  int master_port = 0;                                    // 0: a free one
  bool agent_store = true;                                // false: rank 0 hosts the store
  NodeOrder node_order = NodeOrder::kArrival;             // where nodes are given no number
  std::chrono::milliseconds join_timeout{900'000};        // for all nodes to arrive
  std::chrono::milliseconds node_timeout = kNodeTimeout;  // silence of a node after which it counts as lost
  store::ServerOptions store{};                           // its callbacks, where this launcher hosts the store
  std::optional<control::Secret> secret = std::nullopt;   // that the launchers share
  // This node cannot start its ranks, and meets the others only to inform them.
  std::optional<JoinFailure> trouble = std::nullopt;
  // A rank of this node shows that it is about to fail.
  std::function<bool()> is_any_ending{};
  // Called with the messages that nodes send to this one by tell().
  std::function<void(int from, const std::string& text)> on_message{};
  // Called when another node reports the first failure of the job, or cannot be reached any more; once more when it
  // becomes known that yet another one was the first.
  std::function<void(const FailureNotice&)> on_failure{};
  // For what else the launchers exchange; null: nothing.
  std::shared_ptr<SideChannel> side_channel{};
};

// " within the N s of --join_timeout", for messages about what did not come.
inline std::string within_join_timeout(std::chrono::milliseconds join_timeout) {
  return " within the " + seconds_text(join_timeout) + " of --join_timeout";
}

// Those that the command line decides. Throws LaunchError when the secret cannot be read.
inline RendezvousSettings rendezvous_settings(const Options& options, const JobEnvironment& environment) {
  RendezvousSettings settings{
      .run_id = environment.run_id,
      .nnodes = options.nnodes,
      .elastic = options.elastic,
      .host = options.local_addr.empty() ? host_name() : options.local_addr,
      .local_addr = options.local_addr,
      .node_rank = options.node_rank,
      .local_world_size = std::max(options.nproc_per_node, 1),  // not known yet where there is trouble
      .max_restarts = options.max_restarts,
      .role = options.role,
      .master_addr = environment.master_addr,
      .has_master_addr = options.has_master_addr,
      .master_port = environment.master_port,
      .agent_store = environment.agent_store,
      .node_order = options.order_by_host ? NodeOrder::kHostName : NodeOrder::kArrival,
      .join_timeout = options.join_timeout,
      .node_timeout = options.node_timeout};
  if (options.nnodes > 1 && !options.secret_file.empty()) settings.secret = control::Secret::read(options.secret_file);
  return settings;
}

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
  // RendezvousSettings::on_message while the round runs. It may get lost.
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
  // node's ranks have ended, or every node knows of the first failure, or the time for that has expired.
  virtual void leave(bool ended_well) = 0;
  virtual bool has_left() const = 0;

  // This launcher is about to end, for whatever reason. Where the others can continue without it, they are enabled to:
  // at the latest when has_departed().
  virtual void depart() {}
  virtual bool has_departed() const { return true; }
};

}  // namespace launcher
