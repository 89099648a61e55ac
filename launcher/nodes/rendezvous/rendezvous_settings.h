// What a launcher brings to the rendezvous.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/rendezvous/roster.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/side_channel.h"
#include "launcher/plan/node_timeout.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"
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
  // This node cannot start its ranks, and meets the others only to tell them.
  std::optional<JoinFailure> trouble = std::nullopt;
  // A rank of this node shows that it is about to fail.
  std::function<bool()> is_any_ending{};
  // Called with what nodes tell this one by tell().
  std::function<void(int from, const std::string& text)> on_word{};
  // Called when another node reports the first failure of the job, or cannot be reached any more; once more when it
  // becomes known that yet another one was the first.
  std::function<void(const FailureNotice&)> on_failure{};
  // For what else the launchers have to tell each other; null: nothing.
  std::shared_ptr<SideChannel> side_channel{};
};

// " within the N s of --join_timeout", for messages about what did not come.
std::string within_join_timeout(std::chrono::milliseconds join_timeout);

// Those that the command line decides. Throws LaunchError when the secret cannot be read.
RendezvousSettings rendezvous_settings(const Options& options, const JobEnvironment& environment);

}  // namespace launcher
