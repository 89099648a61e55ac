// The launchers of one job on several nodes, meeting at the store of node 0 as torchrun's static rendezvous does, so
// that ddprun and torchrun nodes can be mixed. Between ddprun nodes the first failure is also told to all others.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"
#include "launcher/store/store_client.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/messages.h"

namespace launcher {

struct StaticRendezvousOptions {
  int nnodes = 1;
  int node_rank = 0;
  int local_world_size = 1;
  std::string role = "default";
  std::string run_id = "none";
  std::string host{};  // of node 0
  std::uint16_t port = 0;
  std::chrono::milliseconds join_timeout{900'000};               // torchrun's
  std::function<std::string(const std::string& key)> look_up{};  // on node 0: into the store, "" when there is none
};

class StaticRendezvous {
 public:
  // Begins to join. References must outlive the group.
  StaticRendezvous(EventLoop& loop, Messages& messages, StaticRendezvousOptions options);
  ~StaticRendezvous();
  StaticRendezvous(const StaticRendezvous&) = delete;
  StaticRendezvous& operator=(const StaticRendezvous&) = delete;

  // This node's ranks, once every node has arrived.
  const std::optional<NodeRanks>& ranks() const { return ranks_; }
  // Why the group could not meet; then it never will.
  const std::optional<std::string>& join_failure() const { return join_failure_; }

  // `on_failure` is called when another node reports the first failure of the job, or node 0 cannot be reached any
  // more.
  void watch(std::function<void(FailureNotice)> on_failure);
  // Tells the others. The first failure of the job, which may be another node's, is then in first_failure().
  void announce(const FailureNotice& notice);
  const std::optional<FailureNotice>& first_failure() const { return first_failure_; }

  // This node's ranks have all ended well; has_left() once every node's have. Node 0 must not close the store before.
  void leave();
  bool has_left() const { return left_; }
  // On node 0, after a failure: all ddprun nodes know of it, so that the store may go.
  bool have_all_heard() const;

 private:
  std::string key(const std::string& name) const { return "/" + options_.run_id + "/" + name; }
  void collect(int node);
  void fail_to_join(std::string reason);
  std::string missing_nodes() const;
  void hear(const std::string& notice);
  void on_lost();

  EventLoop& loop_;
  Messages& messages_;
  StaticRendezvousOptions options_;
  store::StoreClient client_;
  std::optional<store::StoreClient> watcher_;  // its connection waits for the notice all the time
  std::vector<RoleInfo> arrived_;              // on node 0
  std::vector<EventLoop::TimerId> timers_;
  std::optional<NodeRanks> ranks_;
  std::optional<std::string> join_failure_;
  std::optional<FailureNotice> first_failure_;
  std::function<void(FailureNotice)> on_failure_;
  bool leaving_ = false;
  bool left_ = false;
};

}  // namespace launcher
