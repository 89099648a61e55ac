#include "launcher/nodes/rendezvous/round_coordinator.h"

#include <algorithm>
#include <utility>

#include "base/joined.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long the coordinator waits until all nodes have learned how a round ended, in addition to an interruption of the
// network that they survive.
constexpr auto kAcknowledgementTime = 1s;
constexpr auto kReturnMargin = 500ms;
// How long a rank whose peers have lost it may take to end, for example to write a core file of many gigabytes; and how
// often the nodes are asked during that time.
constexpr auto kVerdictTearDown = 60s;
constexpr auto kCauseQueryInterval = 100ms;

}  // namespace

RoundCoordinator::RoundCoordinator(EventLoop& loop, Messages& messages, CoordinatorOptions options)
    : loop_(loop),
      options_(std::move(options)),
      links_(loop,
             {.where = options_.where,
              .ping_interval = control::ping_interval(options_.node_timeout, options_.host.nnodes),
              .reconnect_after = control::reconnect_after(options_.node_timeout, options_.host.nnodes),
              .secret = options_.secret,
              .nodes = options_.host.nnodes},
             {.on_message = [this](Id id, const control::Message& message) { on_message(id, message); },
              .on_relayed = [this](Id id, std::uint32_t round, auto bytes) { on_relayed(id, round, bytes); },
              .on_space_available =
                  [this](Id id) {
                    if (const auto found = store_channels_.find(id); found != store_channels_.end())
                      store_->proxies().on_space_available(id);
                  },
              .on_gone =
                  [this](Id id, const CoordinatorLinks::Loss& loss) {
                    close_relay(id);
                    refusals_unread_.erase(id);
                    expect_again(id, loss);
                    on_gone(id, loss);
                  },
              .on_unknown_peer = [&messages](const std::string& text) { messages.print(text); },
              .timeout = options_.timeout}) {
  if (!options_.side_channel) return;
  options_.side_channel->to_members = [this](auto bytes) { links_.relay_to_all(control::kSideChannelRound, bytes); };
  options_.side_channel->members = [this] { return others_; };
}

RoundCoordinator::~RoundCoordinator() {
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
  for (const auto& [id, store_channel] : store_channels_) *store_channel = {};
  if (options_.side_channel) options_.side_channel->forget_members();
}

void RoundCoordinator::call_after(Clock::duration time, std::function<void()> action) {
  timers_.push_back(loop_.call_at(Clock::now() + time, std::move(action)));
}

void RoundCoordinator::call_after(Clock::duration time, void (RoundCoordinator::*action)()) {
  call_after(time, [this, action] { (this->*action)(); });
}

void RoundCoordinator::begin_round(int round, store::StoreServer& store) {
  cancel_timers();
  round_ = round;
  store_ = &store;
  if (first_failure_.first()) last_status_ = std::max(first_failure_.first()->exit_status, 1);
  numbers_.clear();
  store_channels_.clear();  // the store of the previous round is closed
  ended_.clear();
  unanswered_.clear();
  uninformed_.clear();
  cut_off_.clear();
  first_failure_ = {};
  forget_round();
  if (phase_ == Phase::kRefused) return;
  phase_ = Phase::kJoining;
  if (!lost_.empty()) {
    refuse({lost_, last_status_});
    return;
  }
  begin_joining();
}

void RoundCoordinator::on_message(Id id, const control::Message& message) {
  std::visit([&](const auto& content) { on(id, content); }, message);
}

// Drops bytes of an earlier round, which are for the store of that round.
void RoundCoordinator::on_relayed(Id id, std::uint32_t round, std::string_view bytes) {
  if (round == control::kSideChannelRound) return on_side_channel(id, bytes);
  if (static_cast<int>(round) != round_ || !numbers_.contains(id)) return;
  if (!store_channels_.contains(id)) store_->proxies().add(id, "a client on " + name(id), store_channel_to(id));
  if (!store_->proxies().on_received(id, bytes))
    links_.close(id, "it sent something to the store that is not a launcher's message");
}

std::shared_ptr<store::StoreChannel> RoundCoordinator::store_channel_to(Id id) {
  auto store_channel = std::make_shared<store::StoreChannel>();
  store_channel->send = [this, id](std::string_view bytes) {
    if (auto* link = links_.link(id)) link->relay_bytes(static_cast<std::uint32_t>(round_), bytes);
  };
  store_channel->flush = [this, id] {
    if (auto* link = links_.link(id)) link->flush();
  };
  store_channel->has_room = [this, id] {
    const auto* link = links_.link(id);
    return link == nullptr || link->has_room();
  };
  return store_channels_.emplace(id, std::move(store_channel)).first->second;
}

void RoundCoordinator::close_relay(Id id) {
  if (store_channels_.erase(id) != 0) store_->proxies().drop(id);
}

// A connected node receives the refusal, even if its connection has to be replaced first.
void RoundCoordinator::send_refusal(Id id, const JoinFailure& reason) {
  if (id != own_id_) refusals_unread_.insert(id);
  links_.send(id, control::Refusal{reason});
}

// A silent node waits longer for the coordinator than the coordinator waits for it. If it connects again, it must
// report the same cause.
void RoundCoordinator::expect_again(Id id, const CoordinatorLinks::Loss& loss) {
  const bool is_decided = phase_ == Phase::kDecided;
  if (!loss.is_silent || !numbers_.contains(id) || (is_decided && !is_end_)) return;
  cut_off_.insert(id);
  cut_off_until_ =
      Clock::now() + control::node_side_timeout(options_.node_timeout) - options_.node_timeout + kReturnMargin;
}

void RoundCoordinator::set_acknowledgement_deadline() {
  acknowledgement_deadline_ = Clock::now() + options_.node_timeout + kAcknowledgementTime;
  timers_.push_back(loop_.call_at(acknowledgement_deadline_, [] {}));  // the loop is to wake up by then
}

void RoundCoordinator::on_side_channel(Id id, std::string_view bytes) const {
  const auto number = numbers_.find(id);
  const auto& channel = options_.side_channel;
  if (number != numbers_.end() && channel && channel->on_member_bytes)
    channel->on_member_bytes(number->second, links_.steady_difference(id), bytes);
}

void RoundCoordinator::on(Id id, const control::Failed& failed) {
  const auto number = numbers_.find(id);
  if (failed.round != round_ || number == numbers_.end()) return;
  FailureNotice notice = failed.notice;
  notice.node = number->second;
  notice.time -= links_.clock_offset(id);
  add_failure(std::move(notice));
}

// A node has received nothing from this launcher: this launcher was frozen, or its data did not arrive. The end of that
// node's connection, which follows, does not count as a failure, and all nodes report the same cause.
void RoundCoordinator::on(Id id, const control::CoordinatorSilent& given_up) {
  if (given_up.round != round_ || !numbers_.contains(id) || phase_ == Phase::kDecided || phase_ == Phase::kEnded)
    return;
  const bool is_stop = phase_ == Phase::kStopping || phase_ == Phase::kStopped;
  if (!given_up.notice.is_final || is_stop) {
    links_.lose_coordinator(id, given_up.notice.text);
    return;
  }
  FailureNotice notice = given_up.notice;
  notice.time -= links_.clock_offset(id);
  numbers_.erase(id);
  unanswered_.erase(id);
  add_failure(std::move(notice));
}

void RoundCoordinator::add_failure(FailureNotice notice) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kEnding && phase_ != Phase::kDeciding) return;
  const bool had_cause = first_failure_.has_cause();
  first_failure_.add(notice);
  if (phase_ != Phase::kDeciding) {
    phase_ = Phase::kDeciding;
    deadline_ = Clock::now() + kVerdictTearDown;
    ask_all();
  } else if (!had_cause && first_failure_.has_cause()) {
    ask_all();  // now the nodes must stop their ranks
  } else if (unanswered_.empty()) {
    decide_when_ready();
  }
}

// Asks all nodes which failure they know. As long as only consequences are known, no rank is stopped: the rank that
// failed first may still be ending, and would be stopped with the others.
void RoundCoordinator::ask_all() {
  cancel_timers();
  unanswered_.clear();
  is_any_ending_ = false;
  control::FailureQuery inquiry{.round = round_};
  if (first_failure_.has_cause()) inquiry.stop_because = first_failure_.first();
  for (const auto& [id, number] : numbers_) {
    unanswered_.insert(id);
    links_.send(id, inquiry);
  }
}

// Handles the loss of a node that has not answered. It may have been cut off only briefly, and may know an earlier
// failure, so the coordinator waits until it is lost. If the cause is known by then, the loss does not count as a
// cause.
void RoundCoordinator::add_loss(const FailureNotice& notice) {
  if (phase_ == Phase::kEnding && may_end_without_node()) {
    end_when_all_confirmed();
  } else if (phase_ != Phase::kDeciding || !first_failure_.has_cause()) {
    add_failure(notice);
  } else if (unanswered_.empty()) {
    decide_when_ready();
  }
}

void RoundCoordinator::on(Id id, const control::Report& report) {
  const auto number = numbers_.find(id);
  if (report.round != round_ || number == numbers_.end()) return;
  unanswered_.erase(id);
  end_when_all_confirmed();
  if (phase_ != Phase::kDeciding) return;
  is_any_ending_ = is_any_ending_ || report.is_any_ending;
  const bool had_cause = first_failure_.has_cause();
  if (report.notice) {
    FailureNotice notice = *report.notice;
    notice.node = number->second;
    notice.time -= links_.clock_offset(id);
    first_failure_.add(notice);
  }
  if (!had_cause && first_failure_.has_cause()) {
    ask_all();
  } else if (unanswered_.empty()) {
    decide_when_ready();
  }
}

void RoundCoordinator::decide_when_ready() {
  if (phase_ != Phase::kDeciding) return;
  cancel_timers();
  if (!first_failure_.has_cause() && is_any_ending_ && Clock::now() < deadline_) {
    call_after(kCauseQueryInterval, &RoundCoordinator::ask_all);
  } else {
    decide();
  }
}

void RoundCoordinator::decide() {
  const FailureNotice first = decide_outcome(*first_failure_.first());
  phase_ = first.stop_signal != 0 ? Phase::kStopping : Phase::kDecided;
  ended_.clear();
  stop_status_ = 0;
  is_end_ = first.is_final || round_ >= options_.host.max_restarts;
  if (!is_end_) cut_off_.clear();
  await_acknowledgements();
  // Nodes that were given up receive it, too: a node that was only frozen learns the reason.
  links_.send_to_all(control::Verdict{round_, first});
  if (phase_ == Phase::kStopping) call_after(kSilentWait, &RoundCoordinator::print_running_nodes);
}

void RoundCoordinator::await_acknowledgements() {
  for (const auto& [id, number] : numbers_) uninformed_.insert(id);
  set_acknowledgement_deadline();
}

// When a job is stopped, the ranks of each node may end with different statuses, but all nodes must end with the same
// one.
void RoundCoordinator::on(Id id, const control::Stopped& stopped) {
  if (stopped.round != round_ || phase_ != Phase::kStopping || !numbers_.contains(id)) return;
  ended_.insert(id);
  stop_status_ = std::max(stop_status_, stopped.status);  // the order is 128 + signal, then 85, then 0
  if (ended_.size() == numbers_.size()) ask_all_to_confirm(Phase::kStopped);
}

// A node that was cut off ends on its own, with the signal's status.
void RoundCoordinator::lose_stopped(Id id, const CoordinatorLinks::Loss& loss) {
  const bool has_stopped = ended_.erase(id) > 0;
  if (!has_stopped || loss.is_silent) stop_status_ = std::max(stop_status_, first_failure_.first()->exit_status);
  if (phase_ == Phase::kStopped) {
    end_when_all_confirmed();
  } else if (ended_.size() == numbers_.size()) {
    ask_all_to_confirm(Phase::kStopped);
  }
}

// Asks all nodes once more before the end: a node that was cut off would not learn how the others end, and could end
// with another status.
void RoundCoordinator::ask_all_to_confirm(Phase phase) {
  cancel_timers();
  phase_ = phase;
  unanswered_.clear();
  for (const auto& [id, number] : numbers_) unanswered_.insert(id);
  for (const auto& [id, number] : numbers_) links_.send(id, control::FailureQuery{.round = round_});
  call_after(kSilentWait, &RoundCoordinator::print_silent_nodes);
  end_when_all_confirmed();
}

void RoundCoordinator::print_silent_nodes() {
  const std::string names = ddp::detail::joined(unanswered_, ", ", [this](Id id) { return name(id); });
  links_.send_to_all(control::Waiting{"waiting for " + names + " at the end of the job: no answer yet"});
}

void RoundCoordinator::end_when_all_confirmed() {
  if (!unanswered_.empty() || (phase_ != Phase::kEnding && phase_ != Phase::kStopped)) return;
  cancel_timers();
  if (phase_ == Phase::kEnding) {
    end_round();
  } else {
    end_stop();
  }
}

void RoundCoordinator::end_stop() {
  phase_ = Phase::kDecided;
  await_acknowledgements();
  links_.send_to_all(control::AllStopped{round_, stop_status_});
}

void RoundCoordinator::on(Id id, const control::Acknowledged& acknowledged) {
  refusals_unread_.erase(id);
  cut_off_.erase(id);
  if (acknowledged.round == round_) uninformed_.erase(id);
}

// Forwards a text unchanged; only the sender's number is filled in.
void RoundCoordinator::on(Id id, const control::Word& word) {
  const auto from = numbers_.find(id);
  if (word.round != round_ || phase_ != Phase::kRunning || from == numbers_.end()) return;
  control::Word passed = word;
  passed.from = from->second;
  const auto numbers = numbers_;  // send() may detect that a node is lost
  for (const auto& [to, number] : numbers) {
    const bool is_meant = word.to == number || (word.to == control::kEveryNode && to != id);
    if (is_meant) links_.send(to, passed);
  }
}

void RoundCoordinator::on(Id id, const control::Ended& ended) {
  if (ended.round != round_ || phase_ != Phase::kRunning || !ended_.insert(id).second) return;
  // Asks for the clocks now, because the last records of the timeline follow. Answers during the start of the ranks
  // were too slow to compare clocks.
  if (ended_.size() == 1) links_.ping_all();
  if (!is_end_counted_elsewhere() && ended_.size() == static_cast<std::size_t>(size()))
    ask_all_to_confirm(Phase::kEnding);
  if (phase_ == Phase::kRunning && ended_.size() == 1) call_after(kSilentWait, &RoundCoordinator::print_running_nodes);
}

// Prints, on the nodes that wait, which nodes still run.
void RoundCoordinator::print_running_nodes() {
  std::string names;
  for (const auto& [id, number] : numbers_) {
    if (!ended_.contains(id)) ddp::detail::append_item(names, name(id));
  }
  if (names.empty()) return;
  for (const Id id : ended_) links_.send(id, control::Waiting{"waiting for " + names + ", where ranks still run"});
}

void RoundCoordinator::end_round() {
  phase_ = Phase::kEnded;
  await_acknowledgements();
  links_.send_to_all(control::AllEnded{round_});
  on_success();
}

}  // namespace launcher
