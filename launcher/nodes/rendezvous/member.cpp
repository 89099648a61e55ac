#include "launcher/nodes/rendezvous/member.h"

#include <algorithm>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How often the coordinator's silence is checked; much shorter than the shortest timeout.
constexpr auto kWatch = 50ms;

std::int64_t microseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

SideChannel::Connection side_connection(control::ControlLink& link) {
  return {.is_open = [&link] { return link.is_open(); },
          .waiting = [&link] { return link.unsent_relayed_bytes(); },
          .is_idle = [&link] { return link.is_idle(); },
          .send =
              [&link](std::string_view bytes) {
                link.relay_bytes(control::kSideChannelRound, bytes);
                link.flush();
              }};
}

}  // namespace

Member::Member(EventLoop& loop, Messages& messages, MemberOptions options, UniqueFd fd)
    : loop_(loop), messages_(messages), options_(std::move(options)) {
  link_ = make_link(options_.is_local ? std::move(fd) : UniqueFd());
  link_->send(options_.hello);
  if (!options_.is_local) make_connector(std::move(fd));
  if (options_.side_channel) options_.side_channel->attach(side_connection(*link_));
  next_watch_ = Clock::now();
  watch();
}

std::unique_ptr<control::ControlLink> Member::make_link(UniqueFd fd) {
  return std::make_unique<control::ControlLink>(
      loop_, std::move(fd),
      control::ControlLink::Callbacks{
          .on_message = [this](const control::Message& message) { on_message(message); },
          .on_sign_of_life = [this] { heartbeat_.received(Clock::now()); },
          .on_relayed = [this](std::uint32_t round, std::string_view bytes) { on_relayed(round, bytes); },
          .on_space_available =
              [this] {
                if (store_channel_ && store_channel_->on_space_available) store_channel_->on_space_available();
              },
          .on_closed = [this](const std::string& reason) { on_lost(reason); },
          .on_disconnected = [this](bool is_network) { return on_disconnected(is_network); }});
}

void Member::make_connector(UniqueFd fd) {
  connector_ = std::make_unique<SessionConnector>(
      loop_,
      SessionConnector::Settings{
          .secret = options_.secret, .coordinator = options_.coordinator, .hello = options_.hello},
      SessionConnector::Callbacks{
          .received = [this] { return link_->received(); },
          .acknowledged = [this] { return link_->acknowledged(); },
          .on_asking = [this] { return link_->release(); },
          .on_connected = [this](UniqueFd connection, const control::Welcome& welcome,
                                 std::string_view rest) { on_connected(std::move(connection), welcome, rest); },
          .on_refused = [this](const JoinFailure& reason) { on_refused(reason); },
          .on_ended =
              [this](const std::string& reason) {
                give_up("the connection was lost, and a new one failed: " + reason);
              }});
  connector_->begin(std::move(fd));
}

// Continues the session with the new connection. May destroy this object.
void Member::on_connected(UniqueFd fd, const control::Welcome& welcome, std::string_view rest) {
  heartbeat_.received(Clock::now());
  reconnect_after_ = welcome.reconnect_after;
  if (!link_->can_resume(welcome.received)) {
    give_up("it reports that it has received more than was sent");
    return;
  }
  link_->resume(std::move(fd), welcome.received, rest);
}

// A process that ends closes its connections, so this node does not connect again, unless it is already doing so.
bool Member::on_disconnected(bool is_network) {
  if (!connector_ || (!is_network && !connector_->is_connecting())) return false;
  connector_->reconnect();
  return true;
}

void Member::on_refused(const JoinFailure& reason) {
  link_->abort_session();
  if (has_started_) {
    on_lost(reason.text);
  } else if (!join_failure_) {
    join_failure_ = reason;
    if (options_.on_refusal) options_.on_refusal(reason);
  }
}

Member::~Member() {
  close_relay();
  if (options_.side_channel) options_.side_channel->detach();
  const bool is_missed = !has_started_ && !join_failure_ && !is_leaving_;
  if (link_->is_open() && (is_missed || (has_ended_ && !have_all_ended_)))
    link_->send(control::Leaving{{"it ended", 1}, false});
}

void Member::begin_round(int round) {
  round_ = round;
  close_relay();
  if (first_failure_) last_status_ = std::max(first_failure_->exit_status, 1);
  has_started_ = false;
  has_ended_ = false;
  have_all_ended_ = false;
  own_failure_.reset();
  reported_.reset();
  first_failure_.reset();
  stop_status_.reset();
  agreed_status_.reset();
  // The connection broke between two rounds: the host of the store refused another round, or has ended.
  if (next_refusal_ && !join_failure_) join_failure_ = next_refusal_;
  if (!broken_.empty() && !join_failure_) join_failure_ = JoinFailure{broken_, last_status_};
  if (!join_failure_) link_->send(control::Ready{round});
}

void Member::announce_timeout() {
  if (link_->is_open()) link_->send(control::Pong{0, microseconds_since_1970(), options_.timeout()});
}

void Member::announce(FailureNotice notice) {
  notice.node = node_;
  if (notice.time == decltype(notice.time){}) notice.time = std::chrono::system_clock::now();
  if (!has_started_) {
    if (!is_leaving_) link_->send(control::Leaving{{notice.text, std::max(notice.exit_status, 1)}, !notice.may_rejoin});
    is_leaving_ = true;
    return;
  }
  if (own_failure_ || first_failure_) return;
  own_failure_ = notice;
  if (link_->is_open()) {
    link_->send(control::Failed{round_, std::move(notice)});
  } else {
    first_failure_ = std::move(notice);  // there is no coordinator that could know an earlier failure
  }
}

void Member::report_stop(int status) {
  stop_status_ = status;
  print_stopped();
}

void Member::print_stopped() {
  if (!was_stopped() || !stop_status_) return;
  const int signalled = to_int(ExitStatus::kSignalBase);  // the smallest status that means a signal
  link_->send(control::Stopped{round_, *stop_status_ < signalled ? *stop_status_ : first_failure_->exit_status});
}

bool Member::awaits_stop() const {
  return was_stopped() && link_->is_open() && !agreed_status_;
}

// Without the coordinator the status of the other nodes is not known.
std::optional<int> Member::agreed_status() const {
  if (!was_stopped()) return std::nullopt;
  return agreed_status_.value_or(first_failure_->exit_status);
}

void Member::on(const control::AllStopped& all_stopped) {
  if (all_stopped.round != round_ || !was_stopped()) return;
  link_->send(control::Acknowledged{round_});
  agreed_status_ = all_stopped.status;
}

void Member::end_successfully() {
  has_ended_ = true;
  link_->send(control::Ended{round_});
}

void Member::on_message(const control::Message& message) {
  std::visit([&](const auto& content) { on(content); }, message);
}

void Member::on(const control::Refusal& refusal) {
  link_->send(control::Acknowledged{round_});
  if (has_started_ && !next_refusal_) next_refusal_ = refusal.reason;
  if (has_started_ || join_failure_) return;
  join_failure_ = refusal.reason;
  if (options_.on_refusal) options_.on_refusal(refusal.reason);
}

void Member::on(const control::Waiting& waiting) {
  is_spare_ = is_spare_ || waiting.has_begun;
  messages_.print(waiting.text);
}

void Member::on(const control::Start& start) {
  if (start.round < round_ || has_started_ || is_leaving_) return;
  round_ = start.round;  // a node that arrives late learns the number of restarts
  has_started_ = true;
  node_ = start.place.group_rank;
  coordinator_ = start.coordinator;
  open_relay();
  options_.on_start(start);
}

void Member::open_relay() {
  close_relay();
  store_channel_ = std::make_shared<store::StoreChannel>();
  store_channel_->send = [this](std::string_view bytes) {
    link_->relay_bytes(static_cast<std::uint32_t>(round_), bytes);
  };
  store_channel_->flush = [this] { link_->flush(); };
  store_channel_->has_room = [this] { return link_->has_room(); };
}

void Member::close_relay() {
  const auto store_channel = std::exchange(store_channel_, nullptr);
  if (!store_channel) return;
  store_channel->send = nullptr;
  store_channel->flush = nullptr;
  store_channel->has_room = nullptr;
  if (const auto on_closed = store_channel->on_closed) on_closed();
}

// Bytes of an earlier round are for the store of that round, so they are dropped.
void Member::on_relayed(std::uint32_t round, std::string_view bytes) {
  has_received_much_data_ = true;
  if (round == control::kSideChannelRound) {
    const auto& channel = options_.side_channel;
    if (channel && channel->on_coordinator_bytes) channel->on_coordinator_bytes(bytes);
    return;
  }
  if (static_cast<int>(round) == round_ && store_channel_ && store_channel_->on_bytes) store_channel_->on_bytes(bytes);
}

void Member::on(const control::FailureQuery& inquiry) {
  if (inquiry.round != round_ || !has_started_) return;
  if (inquiry.stop_because) stop_because(*inquiry.stop_because);
  link_->send(control::Report{round_, own_failure_, options_.is_any_ending()});
}

void Member::on(const control::Verdict& verdict) {
  if (verdict.round != round_ || !has_started_) return;
  link_->send(control::Acknowledged{round_});
  if (first_failure_) return;
  first_failure_ = verdict.notice;
  stop_because(*first_failure_);
  print_stopped();
}

// Stops the ranks because of a failure that this node does not know yet, and reports each failure once. It may be this
// node's own failure as the others see it.
void Member::stop_because(const FailureNotice& notice) {
  if ((notice.node == node_ && own_failure_) ||
      (reported_ && reported_->node == notice.node && reported_->text == notice.text))
    return;
  reported_ = notice;
  options_.on_failure(notice);
}

void Member::on(const control::AllEnded& all_ended) {
  if (all_ended.round != round_) return;
  link_->send(control::Acknowledged{round_});
  have_all_ended_ = true;
}

void Member::on(const control::Ping& ping) {
  heartbeat_.set_timeout(control::node_side_timeout(ping.timeout));
  link_->acknowledge();
  link_->send(control::Pong{ping.sent, microseconds_since_1970(), options_.timeout(), control::steady_microseconds()});
}

void Member::on(const control::NodeDropped& /*message*/) {
  was_dropped_ = true;
  if (has_started_) return;  // the decision that was made without this node arrives, too
  if (options_.on_dropped) {
    options_.on_dropped();
  } else {
    give_up("this node has sent nothing for too long");
  }
}

bool Member::is_loss_final() const {
  return !options_.is_coordinator_replaceable && !searches_again();
}

bool Member::searches_again() const {
  return has_lost_coordinator_ && options_.may_come_back && options_.may_come_back();
}

std::string Member::lost_coordinator_text(const std::string& reason) const {
  return "the connection to node " + std::to_string(coordinator_) + " broke (at " + options_.coordinator +
         "): " + reason + (searches_again() ? "; this node stops its ranks and looks for it" : options_.loss_note);
}

// Sends the reason to the coordinator: when it runs again, it must know why all nodes have left, and must not search
// for the first failure among them.
void Member::give_up_silent(const std::string& reason) {
  has_lost_coordinator_ = true;
  if (has_started_) {
    link_->send(control::CoordinatorSilent{round_,
                                           {.node = coordinator_,
                                            .exit_status = 1,
                                            .text = lost_coordinator_text(reason),
                                            .time = std::chrono::system_clock::now(),
                                            .is_final = is_loss_final()}});
  }
  give_up(reason);
}

void Member::on_lost(const std::string& reason) {
  const std::string text = lost_coordinator_text(reason);
  broken_ = text;
  close_relay();
  if (have_all_ended_ || first_failure_ || join_failure_) return;
  if (!has_started_) {
    if (options_.on_lost && options_.on_lost(reason)) return;
    const int status = is_spare_ ? 1 : to_int(ExitStatus::kTimeout);
    join_failure_ = JoinFailure{text, round_ > 0 ? last_status_ : status};
    return;
  }
  // This is the first failure even if this node itself has failed: the others can no longer learn that, and all must
  // end with the same status.
  first_failure_ = FailureNotice{.node = coordinator_, .exit_status = 1, .text = text, .is_final = is_loss_final()};
  stop_because(*first_failure_);
}

void Member::give_up(const std::string& reason) {
  link_->abort_session();
  if (connector_) connector_->cancel();
  on_lost(reason);
}

void Member::watch() {
  const auto now = Clock::now();
  if (now - next_watch_ > kWatch) heartbeat_.extend(now - next_watch_);
  if (std::exchange(has_received_much_data_, false)) announce_timeout();
  if (link_->is_open()) check_connection(now);
  next_watch_ = now + kWatch;
  timer_.start_at(next_watch_, [this] { watch(); });
}

void Member::check_connection(Clock::time_point now) {
  if (link_->has_overflowed()) {
    give_up_silent("it does not read what is sent to it");
  } else if (heartbeat_.is_expired(now)) {
    const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - heartbeat_.last_received());
    give_up_silent("it has sent nothing for " + std::to_string(silence.count()) +
                   " ms: it is frozen, or cannot be reached");
  } else if (connector_) {
    const bool is_lost = !link_->is_connected() || now - heartbeat_.last_received() > reconnect_after_ ||
                         link_->is_stalled(now, reconnect_after_);
    if (is_lost) {
      connector_->reconnect();
    } else if (connector_->is_connecting() && !connector_->has_asked()) {
      connector_->cancel();  // its present connection works again
    }
  }
}

}  // namespace launcher
