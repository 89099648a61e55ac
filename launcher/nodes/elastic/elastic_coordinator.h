// The coordinator of a job whose number of nodes may change. Rounds decides which nodes take part; this class informs
// the nodes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/nodes/elastic/coordinator_discovery.h"
#include "launcher/nodes/elastic/rounds.h"
#include "launcher/nodes/rendezvous/roster.h"
#include "launcher/nodes/rendezvous/round_coordinator.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher::elastic {

// `is_replaceable`: another launcher can take the coordinator's place.
inline Rounds::Cause cause_of(const FailureNotice& first, bool is_replaceable) {
  using Cause = Rounds::Cause;
  if (first.is_regrouping) return Cause::kJoin;
  const bool is_late = first.exit_status == to_int(ExitStatus::kTimeout) && first.is_final;
  if (is_late) return Cause::kFinal;
  // A launcher that ends does not come back to its node. The job ends only if the other nodes need that launcher.
  const bool is_end_of_coordinator = first.node == 0 && first.is_final;
  if (is_end_of_coordinator && !is_replaceable) return Cause::kFinal;
  // A departure is the end of a launcher that received a signal to stop. A launcher that was killed may be started
  // again, too, but counts as failed.
  const bool is_departure = first.may_rejoin && first.exit_status > to_int(ExitStatus::kSignalBase);
  if (is_departure) return Cause::kDeparture;
  return is_end_of_coordinator ? Cause::kCoordinatorLoss : Cause::kFailure;
}

// True when the coordinator's launcher ends and another one becomes coordinator.
inline bool hands_over(const FailureNotice& first, Rounds::Cause cause) {
  return cause == Rounds::Cause::kCoordinatorLoss || (cause == Rounds::Cause::kDeparture && first.node == 0);
}

struct JobOptions {
  RoundsOptions rounds{};
  History history{};
  bool is_replaceable = false;  // another launcher can take this one's place
  // Called when the data that the next coordinator needs has changed.
  std::function<void(Change change)> on_change{};
};

class ElasticCoordinator : public RoundCoordinator {
 public:
  ElasticCoordinator(EventLoop& loop, Messages& messages, CoordinatorOptions options, JobOptions job);

  void refuse(const JoinFailure& reason) override;
  bool has_informed_all() const override;
  // Called when this launcher ends and the job may continue with another coordinator.
  void hand_over_coordination();
  History history() const { return rounds_.history(Clock::now()); }
  // How the job has ended, for nodes that arrive later; empty until then.
  const std::optional<JoinFailure>& job_end() const { return job_end_; }

 protected:
  void begin_joining() override;
  void on_hello(Id id, const control::Hello& hello) override;
  void on_ready(Id id, const control::Ready& ready) override;
  void on_leaving(Id id, const control::Leaving& leaving) override;
  void on_gone(Id id, const CoordinatorLinks::Loss& loss) override;
  std::string name(Id id) const override;
  FailureNotice decide_outcome(FailureNotice first) override;
  void on_success() override;
  bool may_end_without_node() const override { return numbers_.size() >= min_nodes_; }
  bool awaits_lost_nodes() const override;
  int size() const override { return static_cast<int>(hosts_.size()); }

 private:
  void apply(const Rounds::Decisions& decisions);
  void begin(const Rounds::Begin& round);
  void stop_round(const std::string& why);
  void reject(Id id, const JoinFailure& reason);
  void dismiss_spares(const JoinFailure& reason);
  void await_again(Id id, const CoordinatorLinks::Loss& loss);
  void forget(Id id, bool is_silent = false);
  void print_missing_nodes();
  void set_timer();

  Messages& messages_;
  const Roster roster_;  // checks the options of nodes
  Rounds rounds_;
  // How long a node searches for this coordinator after it was silent for too long; 0: the node does not search.
  std::chrono::milliseconds search_time_;
  // The number of nodes that must confirm a good end. A coordinator that is alone may itself be cut off from the
  // others.
  std::size_t min_nodes_;
  bool is_replaceable_;
  bool has_handed_over_ = false;  // another launcher becomes coordinator, or may become it
  std::function<void(Change)> on_change_;
  std::map<Id, control::Hello> nodes_;
  std::map<std::pair<std::string, int>, Clock::time_point> lost_nodes_;  // host and process, and until when they look
  std::map<Id, JoinFailure> rejected_;
  std::vector<std::string> hosts_;      // the hosts of the round's nodes, by node number
  std::optional<JoinFailure> job_end_;  // the answer to nodes that arrive now
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher::elastic
