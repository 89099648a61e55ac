// The coordinator's work while the ranks of a job run: it finds the first failure and reports it to all nodes, carries
// bytes between their ranks and the store, and determines when all launchers may end. A subclass defines how the
// launchers meet and which of them take part.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/rendezvous/coordinator_links.h"
#include "launcher/nodes/rendezvous/roster.h"
#include "launcher/nodes/store/store_channel.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/network/side_channel.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

class FirstNodeFailure {
 public:
  // `notice.time` is by the coordinator's clock.
  void add(const FailureNotice& notice) {
    const bool is_first = !first_ || (notice.is_consequence != first_->is_consequence ? first_->is_consequence
                                                                                      : notice.time < first_->time);
    if (is_first) first_ = notice;
  }
  // True when a failure is known that is not a consequence of another one.
  bool has_cause() const { return first_ && !first_->is_consequence; }
  // The first cause, or the first consequence if only consequences are known.
  const std::optional<FailureNotice>& first() const { return first_; }

 private:
  std::optional<FailureNotice> first_;
};

struct CoordinatorOptions {
  control::Hello host{};             // of the coordinator's own node
  std::string rendezvous_address{};  // "host0:29500", for messages
  ListenAt where{};
  std::optional<control::Secret> secret = std::nullopt;
  NodeOrder order = NodeOrder::kByNodeRank;
  std::chrono::milliseconds join_timeout{900'000};
  std::chrono::milliseconds node_timeout = kNodeTimeout;  // a node that is silent for so long is lost
  std::function<std::chrono::milliseconds()> timeout{};   // how long this launcher may be silent
  std::shared_ptr<SideChannel> side_channel{};            // null: none
};

// The work of every coordinator while a round runs, however the nodes have met.
class RoundCoordinator {
 public:
  RoundCoordinator(EventLoop& loop, Messages& messages, CoordinatorOptions options);
  virtual ~RoundCoordinator();
  RoundCoordinator(const RoundCoordinator&) = delete;
  RoundCoordinator& operator=(const RoundCoordinator&) = delete;

  std::uint16_t port() const { return links_.port(); }
  // Returns a connection for this launcher's own node, which takes part like the others.
  UniqueFd connect_locally() { return links_.connect_locally(); }

  // Begins round number `round` with `store`, which must outlive the round. The launchers connect by themselves.
  void begin_round(int round, store::StoreServer& store);
  // The round, and with it the job, cannot begin. Informs all connected nodes, and those that connect later.
  virtual void refuse(const JoinFailure& reason) = 0;
  // Call it when the timeout of this launcher has changed.
  void announce_timeout() { links_.ping_all(); }
  // True when all nodes were informed, or when the time for that has expired.
  virtual bool has_informed_all() const = 0;
  // True when all connected nodes know how the round ended, or when the time for that has expired.
  bool have_all_acknowledged() const {
    const bool is_known = uninformed_.empty() && refusals_unread_.empty();
    const bool may_come = (!cut_off_.empty() && Clock::now() < cut_off_until_) || awaits_lost_nodes();
    const bool is_stop = phase_ == Phase::kStopping || phase_ == Phase::kStopped;
    return phase_ != Phase::kEnding && !is_stop && !may_come && (is_known || Clock::now() >= acknowledgement_deadline_);
  }

 protected:
  using Id = CoordinatorLinks::Id;
  using Clock = EventLoop::Clock;
  // kEnding: the ranks of all nodes have ended well. kStopped: the ranks of a job that was stopped have ended. In both
  // phases all nodes are asked once more, so that no node is cut off when the others end.
  enum class Phase : std::uint8_t {
    kJoining,
    kRefused,
    kRunning,
    kEnding,
    kDeciding,
    kStopping,
    kStopped,
    kDecided,
    kEnded
  };

  virtual void begin_joining() = 0;
  virtual void on_hello(Id id, const control::Hello& hello) = 0;
  virtual void on_ready(Id id, const control::Ready& ready) = 0;
  virtual void on_leaving(Id id, const control::Leaving& leaving) = 0;
  virtual void on_gone(Id id, const CoordinatorLinks::Loss& loss) = 0;
  // "node 1 (host b)", for messages.
  virtual std::string name(Id id) const = 0;
  virtual void forget_round() {}
  virtual FailureNotice decide_outcome(FailureNotice first) { return first; }
  virtual void on_success() {}
  // A node was lost after all ranks had ended well, but before the node confirmed that. Returns whether the others end
  // well without it.
  virtual bool may_end_without_node() const { return false; }
  // True while lost nodes may search for this coordinator and must still learn how the job has ended.
  virtual bool awaits_lost_nodes() const { return false; }
  virtual int size() const = 0;
  // True when nodes take part that this class does not see, so that the subclass counts the nodes that have ended well.
  virtual bool is_end_counted_elsewhere() { return false; }

  void add_failure(FailureNotice notice);
  void add_loss(const FailureNotice& notice);
  void send_refusal(Id id, const JoinFailure& reason);
  void set_acknowledgement_deadline();
  void lose_stopped(Id id, const CoordinatorLinks::Loss& loss);
  void ask_all_to_confirm(Phase phase);
  void end_when_all_confirmed();
  // The beginning of a message about a lost node, such as "the launcher of node 1 (host b) is gone: ".
  std::string loss_prefix(const std::string& name) const {
    return "the launcher of " + name +
           (phase_ == Phase::kEnding ? " did not confirm the end of the job: " : " is gone: ");
  }
  void call_after(Clock::duration time, std::function<void()> action);
  void cancel_timers() {
    for (const EventLoop::TimerId& timer : std::exchange(timers_, {})) loop_.cancel(timer);
  }

  EventLoop& loop_;
  CoordinatorOptions options_;
  CoordinatorLinks links_;
  store::StoreServer* store_ = nullptr;
  Phase phase_ = Phase::kJoining;
  int round_ = -1;
  std::string lost_;              // the node that was lost after a failure and cannot join the next round
  int last_status_ = 1;           // the status of that failure
  std::map<Id, int> numbers_;     // the node numbers in the running round
  std::size_t others_ = 0;        // launchers in this round besides this one
  std::set<Id> ended_;            // nodes whose ranks have ended well, or were stopped
  std::set<Id> unanswered_;       // nodes that have not answered yet
  std::set<Id> uninformed_;       // nodes that have not learned of the round's end yet
  std::set<Id> refusals_unread_;  // nodes that have not learned of their refusal yet
  std::optional<Id> own_id_;      // this launcher's node
  Clock::time_point deadline_{};  // when to stop to inform nodes, or to wait for a cause
  Clock::time_point acknowledgement_deadline_{};  // when all nodes must have learned how the round or the job ends
  std::vector<EventLoop::TimerId> timers_;        // the timers of the present phase

 private:
  void on_message(Id id, const control::Message& message);
  // Bytes from the ranks of a node for their store.
  void on_relayed(Id id, std::uint32_t round, std::string_view bytes);
  void on_side_channel(Id id, std::string_view bytes) const;
  std::shared_ptr<store::StoreChannel> store_channel_to(Id id);
  void close_relay(Id id);
  void on(Id id, const control::Hello& hello) {
    links_.mark_known(id);
    on_hello(id, hello);
  }
  void on(Id id, const control::Ready& ready) { on_ready(id, ready); }
  void on(Id id, const control::Leaving& leaving) { on_leaving(id, leaving); }
  void on(Id id, const control::Failed& failed);
  void on(Id id, const control::CoordinatorSilent& given_up);
  void on(Id id, const control::Report& report);
  void on(Id id, const control::Acknowledged& acknowledged);
  void on(Id id, const control::Stopped& stopped);
  void on(Id id, const control::Ended& ended);
  void on(Id id, const control::Word& word);
  template <typename Other>
  void on(Id /*id*/, const Other& /*message*/) {}  // messages that only the coordinator sends
  void print_running_nodes();
  void expect_again(Id id, const CoordinatorLinks::Loss& loss);
  void ask_all();
  void decide_when_ready();
  void decide();
  void await_acknowledgements();
  void print_silent_nodes();
  void end_stop();
  void end_round();
  void call_after(Clock::duration time, void (RoundCoordinator::*action)());

  std::set<Id> cut_off_;  // nodes that were given up and may still return to learn why all end
  std::map<Id, std::shared_ptr<store::StoreChannel>>
      store_channels_;   // by node whose ranks use the store in this round
  int stop_status_ = 0;  // the combined status of the nodes that have stopped
  FirstNodeFailure first_failure_;
  bool is_any_ending_ = false;
  bool is_end_ = false;  // no round follows the failure
  Clock::time_point cut_off_until_{};
};

}  // namespace launcher
