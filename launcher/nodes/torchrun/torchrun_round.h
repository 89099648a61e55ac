// A ddprun node in a job whose store torchrun hosts: any node but node 0 of torchrun's static rendezvous. The ddprun
// nodes of such a job report the first failure to each other with a key of their own.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/nodes/store/store_client.h"
#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher {

struct TorchrunRoundOptions {
  RoleInfo own{};
  int nnodes = 1;
  std::string run_id = "none";
  std::string host{};  // the host of node 0
  std::uint16_t port = 0;
  std::chrono::milliseconds join_timeout{900'000};  // the same as torchrun's
  // The ranks of this node, called when every node has arrived.
  std::function<void(const NodeRanks&)> on_joined{};
  // The first failure that a ddprun node of the job has reported. `is_own`: this node has announced it.
  std::function<void(const FailureNotice& notice, bool is_own)> on_failure{};
};

class TorchrunRound {
 public:
  // Begins to join. References must outlive the round.
  TorchrunRound(EventLoop& loop, Messages& messages, TorchrunRoundOptions options);
  ~TorchrunRound();
  TorchrunRound(const TorchrunRound&) = delete;
  TorchrunRound& operator=(const TorchrunRound&) = delete;

  // Why the nodes could not meet; this is final.
  const std::optional<JoinFailure>& join_failure() const { return join_failure_; }

  // Informs the other ddprun nodes. first_failure() then has the first failure, which may be another node's.
  void announce(const FailureNotice& notice);
  const std::optional<FailureNotice>& first_failure() const { return first_failure_; }

  // Call it when this node's ranks have all ended well; has_left() is true once those of every node have.
  void leave();
  bool has_left() const { return has_left_; }

 private:
  void join(const std::string& ranks);
  void fail_to_join(const std::string& reason);
  void on_notice(const std::string& notice);
  void fail(FailureNotice notice, bool is_own);
  void on_lost();

  EventLoop& loop_;
  Messages& messages_;
  TorchrunRoundOptions options_;
  TorchrunKeys keys_;
  store::StoreClient client_;
  std::optional<store::StoreClient> watcher_;  // this connection waits for the notice all the time
  std::vector<EventLoop::TimerId> timers_;
  std::optional<JoinFailure> join_failure_;
  std::optional<FailureNotice> first_failure_;
  bool has_joined_ = false;
  bool is_leaving_ = false;
  bool has_left_ = false;
};

}  // namespace launcher
