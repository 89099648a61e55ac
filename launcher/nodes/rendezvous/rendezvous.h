// How the launchers of one job meet: where the ranks' store is, which ranks each node has, which failure was the first,
// and when all launchers may end. There is one implementation for each way to meet; rendezvous_kinds.h lists them.
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
  std::string host{};        // the name of this node
  std::string local_addr{};  // how the others reach it; "": not said
  int node_rank = 0;
  int local_world_size = 1;
  int max_restarts = 0;
  std::string role = "default";
  std::string master_addr{};                   // where the user wants the ranks' store
  bool has_master_addr = true;                 // false: the user did not give an address, and other nodes may know one
  int master_port = 0;                         // 0: any free port
  bool agent_store = true;                     // false: rank 0 hosts the store
  NodeOrder node_order = NodeOrder::kArrival;  // used if nodes are given no number
  std::chrono::milliseconds join_timeout{900'000};        // the limit for all nodes to arrive
  std::chrono::milliseconds node_timeout = kNodeTimeout;  // a node that is silent for so long is lost
  store::ServerOptions store{};                           // its callbacks are used if this launcher hosts the store
  std::optional<control::Secret> secret = std::nullopt;   // that the launchers share
  // This node cannot start its ranks, and connects only to inform the others.
  std::optional<JoinFailure> start_failure = std::nullopt;
  // True when a rank of this node is about to fail.
  std::function<bool()> is_any_ending{};
  // Called with the messages that other nodes, or this one, send with send_text().
  std::function<void(int from, const std::string& text)> on_message{};
  // Called when another node reports the first failure of the job, or cannot be reached any more. Called again if
  // another failure turns out to be the first.
  std::function<void(const FailureNotice&)> on_failure{};
  // Other data that the launchers exchange; null if they exchange no other data.
  std::shared_ptr<SideChannel> side_channel{};
};

// The text " within the N s of --join_timeout", for messages about nodes that did not arrive.
inline std::string within_join_timeout(std::chrono::milliseconds join_timeout) {
  return " within the " + seconds_text(join_timeout) + " of --join_timeout";
}

// The settings that follow from the command line. Throws LaunchError when the secret cannot be read.
inline RendezvousSettings rendezvous_settings(const Options& options, const JobEnvironment& environment) {
  RendezvousSettings settings{
      .run_id = environment.run_id,
      .nnodes = options.nnodes,
      .elastic = options.elastic,
      .host = options.local_addr.empty() ? host_name() : options.local_addr,
      .local_addr = options.local_addr,
      .node_rank = options.node_rank,
      .local_world_size = std::max(options.nproc_per_node, 1),  // unknown if this node cannot start its ranks
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
  std::shared_ptr<store::StoreChannel> store_channel{};  // to the store, if another node's ddprun hosts it
  std::string own_address{};                             // this node's, as the others see it; "" when that is not known
  std::optional<int> restart_count =
      std::nullopt;  // the count on which all nodes agree; a node that arrives late does not know it otherwise
};

// No function blocks: waits happen in the event loop. The implementation limits all of them.
class Rendezvous {
 public:
  Rendezvous() = default;
  virtual ~Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Begins round number `restart_count` with an empty store, and ends the previous one. Throws LaunchError when the
  // store cannot be opened here.
  virtual void begin_round(int restart_count) = 0;
  // The result of the round's rendezvous, once every node has arrived.
  virtual const std::optional<RendezvousInfo>& info() const = 0;
  // Why the nodes could not meet in this round; this is final. Other nodes may still have to be informed, until
  // has_left().
  virtual std::optional<JoinFailure> join_failure() const = 0;
  // The ranks' store of this round, null where another process hosts it.
  virtual store::StoreServer* store() = 0;

  // Call it when the round's ranks have been started: from now on this launcher answers pings at once.
  virtual void ranks_started() = 0;
  // Whether every node will begin another round when this one ends by a failure that is not final.
  virtual bool can_restart() const = 0;
  // True when can_restart() counts the restarts, so that the nodes need not do it.
  virtual bool counts_restarts() const { return false; }

  // Sends a text to node `to`, which may be this one, or to all others with control::kEveryNode. It is passed to their
  // RendezvousSettings::on_message while the round runs. It may get lost.
  virtual void send_text(int /*to*/, std::string /*text*/) {}
  // Informs the other nodes that this one is being stopped, and why; the number of this node is filled in.
  // first_failure() then has the job's first failure. If not all nodes have met, the job ends, unless this node may
  // return.
  virtual void announce(FailureNotice notice) = 0;
  virtual const std::optional<FailureNotice>& first_failure() const = 0;

  // Call it before leave(): the status of this node if the job was stopped by a signal: 0, 85 (all saved), or 128 and
  // more. The status of all nodes together is in agreed_status() when has_left() is true.
  virtual void report_stop(int /*status*/) {}
  virtual std::optional<int> agreed_status() const { return std::nullopt; }

  // Call it when this node's ranks have all ended. has_left() becomes true when the launcher, and with it the store,
  // may end: the ranks of all nodes have ended, or every node knows the first failure, or the timeout has expired.
  virtual void leave(bool ended_well) = 0;
  virtual bool has_left() const = 0;

  // This launcher is about to end, for any reason. If the other nodes can continue without it, this prepares them; it
  // is complete when has_handed_over() is true.
  virtual void hand_over_coordination() {}
  virtual bool has_handed_over() const { return true; }
};

}  // namespace launcher
