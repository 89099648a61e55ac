// One round of torchrun's static rendezvous, over the store of node 0: its keys and the order in which they are
// written. Between ddprun nodes the first failure is also told to all others.
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

struct StaticRoundOptions {
  int nnodes = 1;
  int node_rank = 0;
  int local_world_size = 1;
  std::string role = "default";
  std::string run_id = "none";
  std::string host{};  // of node 0
  std::uint16_t port = 0;
  std::chrono::milliseconds join_timeout{900'000};               // torchrun's
  std::function<std::string(const std::string& key)> look_up{};  // on node 0: into the store, "" when there is none
  // This node's ranks, once every node has arrived.
  std::function<void(const NodeRanks&)> on_joined{};
  // The first failure of the job is known. `is_own`: it is what this node announced.
  std::function<void(const FailureNotice& notice, bool is_own)> on_failure{};
};

class StaticRound {
 public:
  // Begins to join. References must outlive the round.
  StaticRound(EventLoop& loop, Messages& messages, StaticRoundOptions options);
  ~StaticRound();
  StaticRound(const StaticRound&) = delete;
  StaticRound& operator=(const StaticRound&) = delete;

  // Why the nodes could not meet; then they never will.
  const std::optional<std::string>& join_failure() const { return join_failure_; }

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
  void join(const NodeRanks& ranks);
  void fail_to_join(std::string reason);
  struct Absent {
    std::string never_came;  // "node 1, 3"
    std::string left;
  };
  Absent absent_nodes() const;
  std::string missing_nodes() const;
  std::string timeout_text(const std::string& place) const;
  void hear(const std::string& notice);
  void fail(FailureNotice notice, bool is_own);
  void on_lost();

  EventLoop& loop_;
  Messages& messages_;
  StaticRoundOptions options_;
  store::StoreClient client_;
  std::optional<store::StoreClient> watcher_;  // its connection waits for the notice all the time
  std::vector<RoleInfo> arrived_;              // on node 0
  std::vector<EventLoop::TimerId> timers_;
  std::optional<std::string> join_failure_;
  std::optional<FailureNotice> first_failure_;
  bool joined_ = false;
  bool leaving_ = false;
  bool left_ = false;
};

}  // namespace launcher
