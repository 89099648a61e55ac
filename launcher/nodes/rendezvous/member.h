// A node's side of its connection to the coordinator. The coordinator may be in the same launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/nodes/control/control_link.h"
#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/control/heartbeat.h"
#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/rendezvous/session_connector.h"
#include "launcher/nodes/store/store_channel.h"
#include "launcher/os/network/side_channel.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

struct MemberOptions {
  control::Hello hello{};
  bool is_local = false;                                 // the coordinator is this launcher's own
  std::optional<control::Secret> secret = std::nullopt;  // the coordinator must know it, too
  std::string coordinator{};                             // "host0:29500", for messages
  std::function<std::chrono::milliseconds()> timeout{};  // how long this launcher may be silent
  std::function<bool()> is_any_ending{};                 // a rank of this node shows that it is about to fail
  std::function<void(const control::Start&)> on_start{};
  // Another node failed, so the ranks of this node must stop. Called again if an earlier failure becomes known.
  std::function<void(const FailureNotice&)> on_failure{};
  // The coordinator refuses this node; may destroy the member. If empty, join_failure() has the reason.
  std::function<void(const JoinFailure&)> on_refusal{};
  // Another launcher can become coordinator when this one is lost, so the loss is not final.
  bool is_coordinator_replaceable = false;
  // The coordinator was lost before the round began. Returns whether this node searches for it, or for another one; if
  // not, join_failure() has the reason. May be null.
  std::function<bool(const std::string& reason)> on_lost{};
  // True when a coordinator that was silent for too long may be reachable again, so that this node will return to it:
  // its loss is not final. May be null.
  std::function<bool()> may_come_back{};
  // A message that send_text() sent on another node, or on this one, in the current round. May be null.
  std::function<void(int from, const std::string& text)> on_message{};
  // The coordinator has given this node up before the round began; may destroy the member. If null, join_failure() has
  // the reason.
  std::function<void()> on_dropped{};
  std::string loss_note{};                      // added to the message about a lost coordinator
  std::shared_ptr<SideChannel> side_channel{};  // null: none
};

class Member {
 public:
  // `fd` is connected to the coordinator. `loop` and `messages` must outlive the member.
  Member(EventLoop& loop, Messages& messages, MemberOptions options, UniqueFd fd);
  // Informs the coordinator if the other nodes depend on this one.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void begin_round(int round);
  // Call it when the timeout of this launcher has changed.
  void announce_timeout();
  // Whether another round can begin.
  bool is_connected() const { return link_->is_open(); }
  // The coordinator has continued without this node, which was silent for too long.
  bool was_dropped() const { return was_dropped_; }
  // The job runs without this node, which waits for a restart.
  bool is_spare() const { return is_spare_; }
  // This node has heard nothing of the coordinator for too long.
  bool has_lost_coordinator() const { return has_lost_coordinator_; }
  const std::optional<JoinFailure>& join_failure() const { return join_failure_; }
  // The connection to the ranks' store in the round that has begun; null before.
  const std::shared_ptr<store::StoreChannel>& store_channel() const { return store_channel_; }

  // Sends a text to node `to`, which may be this one, or to all with control::kEveryNode. It is lost if there is no
  // connection or no round runs.
  void send_text(int to, std::string text) {
    if (has_started_ && link_->is_open()) link_->send(control::Word{round_, node_, to, std::move(text)});
  }
  // This node's ranks are being stopped. If the round has not begun, the node leaves, and the others may wait for its
  // return if the notice allows that.
  void announce(FailureNotice notice);
  const std::optional<FailureNotice>& first_failure() const { return first_failure_; }
  // This node's ranks have ended. `status` counts if the job was stopped.
  void report_stop(int status);
  // The job was stopped, and ranks of other nodes are still ending.
  bool awaits_stop() const;
  // The exit status for all nodes of a job that was stopped.
  std::optional<int> agreed_status() const;
  // True when this node has announced a failure in this round.
  bool has_failed() const { return own_failure_.has_value(); }
  // The coordinator is in this launcher, and must not coordinate any longer.
  void give_up(const std::string& reason);
  void end_successfully();
  // True when the ranks of all nodes have ended, or when nothing more can be learned about them.
  bool have_all_ended() const { return have_all_ended_; }

 private:
  using Clock = EventLoop::Clock;

  void on_message(const control::Message& message);
  void on_relayed(std::uint32_t round, std::string_view bytes);
  void open_relay();
  void close_relay();
  void on(const control::Refusal& refusal);
  void on(const control::Waiting& waiting);
  void on(const control::Start& start);
  void on(const control::FailureQuery& inquiry);
  void on(const control::Verdict& verdict);
  void on(const control::AllStopped& all_stopped);
  void on(const control::AllEnded& all_ended);
  void on(const control::Word& word) {
    if (word.round == round_ && has_started_ && options_.on_message) options_.on_message(word.from, word.text);
  }
  void on(const control::Ping& ping);
  void on(const control::NodeDropped& message);
  template <typename Other>
  void on(const Other& /*message*/) {}  // messages that only a node sends
  std::unique_ptr<control::ControlLink> make_link(UniqueFd fd);
  void make_connector(UniqueFd fd);
  void on_connected(UniqueFd fd, const control::Welcome& welcome, std::string_view rest);
  bool on_disconnected(bool is_network);
  void on_refused(const JoinFailure& reason);
  void check_connection(Clock::time_point now);
  // Whether this node will search for the coordinator again, which begins another round.
  bool searches_again() const;
  bool is_loss_final() const;
  std::string lost_coordinator_text(const std::string& reason) const;
  void give_up_silent(const std::string& reason);
  void on_lost(const std::string& reason);
  void stop_because(const FailureNotice& notice);
  bool was_stopped() const { return first_failure_ && first_failure_->stop_signal != 0; }
  void print_stopped();
  void watch();

  EventLoop& loop_;
  Messages& messages_;
  MemberOptions options_;
  std::unique_ptr<control::ControlLink> link_;
  std::unique_ptr<SessionConnector> connector_;  // null when the coordinator is in this launcher
  std::chrono::milliseconds reconnect_after_{1'000};
  control::HeartbeatTimeout heartbeat_{Clock::now()};
  Clock::time_point next_watch_{};
  EventLoop::Timer timer_{loop_};
  std::shared_ptr<store::StoreChannel> store_channel_;
  // Much data arrived recently. A ping arrives after that data, so this node reports without waiting for one.
  bool has_received_much_data_ = false;
  bool was_dropped_ = false;
  bool has_lost_coordinator_ = false;
  bool is_spare_ = false;
  int round_ = 0;
  int last_status_ = 1;  // the status of the failure before this round
  std::string broken_;   // why there is no connection any more
  bool has_started_ = false;
  bool has_ended_ = false;
  bool have_all_ended_ = false;
  bool is_leaving_ = false;
  int node_ = 0;
  int coordinator_ = 0;  // the number of the coordinator's node
  std::optional<JoinFailure> join_failure_;
  std::optional<JoinFailure> next_refusal_;  // refusal of a round that this node has not begun yet
  std::optional<FailureNotice> own_failure_;
  std::optional<FailureNotice> reported_;  // the failure that was last passed to on_failure
  std::optional<FailureNotice> first_failure_;
  std::optional<int> stop_status_;    // the status of this node
  std::optional<int> agreed_status_;  // the status of all nodes
};

}  // namespace launcher
