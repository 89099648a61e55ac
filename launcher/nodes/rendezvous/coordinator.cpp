#include "launcher/nodes/rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "launcher/nodes/rendezvous/rendezvous_settings.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/messages.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long a job that cannot begin stays to tell those that have not come yet: they were started with it.
constexpr auto kTelling = 5s;
// How long the coordinator waits for all nodes to hear how a round ended, beyond the interruption of the network that
// they survive.
constexpr auto kHearing = 1s;
constexpr auto kComingAgain = 500ms;

}  // namespace

Coordinator::Coordinator(EventLoop& loop, Messages& messages, CoordinatorOptions options)
    : loop_(loop),
      options_(std::move(options)),
      roster_(options_.host, options_.order),
      links_(loop,
             {.where = options_.where,
              .ping_interval = control::ping_interval(options_.node_timeout, options_.host.nnodes),
              .reconnect_after = control::reconnect_after(options_.node_timeout, options_.host.nnodes),
              .secret = options_.secret,
              .nodes = options_.host.nnodes},
             {.on_message = [this](Id id, const control::Message& message) { on_message(id, message); },
              .on_carried = [this](Id id, std::uint32_t round, auto bytes) { on_carried(id, round, bytes); },
              .on_room =
                  [this](Id id) {
                    if (const auto found = carriers_.find(id); found != carriers_.end()) store_->proxies().on_room(id);
                  },
              .on_gone =
                  [this](Id id, const CoordinatorLinks::Loss& loss) {
                    close_carrier(id);
                    reading_.erase(id);
                    expect_again(id, loss);
                    on_gone(id, loss);
                  },
              .on_stranger = [&messages](const std::string& text) { messages.say(text); },
              .patience = options_.patience}) {
  if (!options_.side_channel) return;
  options_.side_channel->to_members = [this](auto bytes) { links_.carry_to_all(control::kSideRound, bytes); };
  options_.side_channel->members = [this] { return others_; };
}

Coordinator::~Coordinator() {
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
  for (const auto& [id, carrier] : carriers_) *carrier = {};
  if (options_.side_channel) options_.side_channel->forget_members();
}

void Coordinator::call_in(Clock::duration time, std::function<void()> action) {
  timers_.push_back(loop_.call_at(Clock::now() + time, std::move(action)));
}

void Coordinator::call_in(Clock::duration time, void (Coordinator::*action)()) {
  call_in(time, [this, action] { (this->*action)(); });
}

void Coordinator::begin_round(int round, store::StoreServer& store) {
  for (const EventLoop::TimerId& timer : std::exchange(timers_, {})) loop_.cancel(timer);
  round_ = round;
  store_ = &store;
  if (arbiter_.first()) last_status_ = std::max(arbiter_.first()->exit_status, 1);
  numbers_.clear();
  carriers_.clear();  // the store to which they led is gone
  ended_.clear();
  asked_.clear();
  unaware_.clear();
  cut_off_.clear();
  arbiter_ = {};
  torchrun_.reset();
  if (phase_ == Phase::kRefused) return;
  phase_ = Phase::kJoining;
  if (!lost_.empty()) {
    refuse({lost_, last_status_});
    return;
  }
  begin_joining();
}

void Coordinator::begin_joining() {
  if (round_ == 0 && options_.order == NodeOrder::kGiven && !options_.secret) {
    torchrun_ = std::make_unique<TorchrunPeers>(
        loop_, *store_, options_.host.run_id,
        TorchrunPeers::Callbacks{.on_arrived =
                                     [this](const RoleInfo& info) {
                                       if (const auto reason = roster_.admit_foreign(info)) {
                                         refuse(*reason);
                                       } else {
                                         expect_torchrun();
                                         start_when_complete();
                                       }
                                     },
                                 .on_nonsense =
                                     [this](const std::string& text) {
                                       refuse({text, to_int(ExitStatus::kLauncherError)});
                                     },
                                 .on_all_ended =
                                     [this] {
                                       if (phase_ == Phase::kRunning) ask_whether_all_are_there(Phase::kEnding);
                                     },
                                 .on_twice = [this](int node) { foreign_came_twice(node); }});
    expect_torchrun();
  }
  call_in(kSilentWait, &Coordinator::say_who_is_missing);
  call_in(options_.join_timeout, &Coordinator::on_join_timeout);
  start_when_complete();
}

// Its ranks would run twice, or it was started again: either way its peers do not know it.
void Coordinator::foreign_came_twice(int node) {
  add_failure({.node = node,
               .exit_status = to_int(ExitStatus::kLauncherError),
               .text = "--node_rank " + std::to_string(node) + " came twice, both times as a torchrun node",
               .time = std::chrono::system_clock::now(),
               .is_final = true});
}

void Coordinator::expect_torchrun() {
  if (!torchrun_) return;
  if (const auto missing = roster_.lowest_missing()) torchrun_->expect(*missing);
}

void Coordinator::on_message(Id id, const control::Message& message) {
  std::visit([&](const auto& content) { on(id, content); }, message);
}

// What is late belongs to the store of an earlier round.
void Coordinator::on_carried(Id id, std::uint32_t round, std::string_view bytes) {
  if (round == control::kSideRound) return on_side_channel(id, bytes);
  if (static_cast<int>(round) != round_ || !numbers_.contains(id)) return;
  if (!carriers_.contains(id)) store_->proxies().add(id, "a client on " + name(id), carrier_to(id));
  if (!store_->proxies().deliver(id, bytes)) links_.close(id, "what it sends to the store is nothing of a launcher");
}

std::shared_ptr<store::Carrier> Coordinator::carrier_to(Id id) {
  auto carrier = std::make_shared<store::Carrier>();
  carrier->send = [this, id](std::string_view bytes) {
    if (auto* link = links_.link(id)) link->carry(static_cast<std::uint32_t>(round_), bytes);
  };
  carrier->flush = [this, id] {
    if (auto* link = links_.link(id)) link->flush();
  };
  carrier->has_room = [this, id] {
    const auto* link = links_.link(id);
    return link == nullptr || link->has_room();
  };
  return carriers_.emplace(id, std::move(carrier)).first->second;
}

void Coordinator::close_carrier(Id id) {
  if (carriers_.erase(id) != 0) store_->proxies().drop(id);
}

void Coordinator::on_hello(Id id, const control::Hello& hello) {
  if (roster_.has(id)) return;
  if (hello.launcher == options_.host.launcher && !roster_.ids().empty()) {
    links_.drop(id);  // this one itself, which looked for a rival and came back here: a virtual address leads to it
    return;
  }
  if (hello.launcher == options_.host.launcher) own_ = id;
  if (phase_ == Phase::kRefused) {
    told_.insert(id);
    send_refusal(id, refusal_);
    return;
  }
  auto reason = roster_.admit(id, hello);
  if (!reason && torchrun_ && torchrun_->has_come(hello.node_rank)) {
    reason = roster_.admit_foreign({.role = "", .node = hello.node_rank, .local_world_size = 1});
  }
  if (reason && phase_ == Phase::kJoining && round_ <= 0) {
    told_.insert(id);
    send_refusal(id, *reason);
    refuse(*reason);
  } else if (reason || phase_ != Phase::kJoining || round_ > 0) {
    links_.send(id, control::Refusal{reason.value_or(
                        JoinFailure{"the job has begun without this node", to_int(ExitStatus::kLauncherError)})});
    roster_.remove(id);
  } else {
    expect_torchrun();
  }
}

void Coordinator::on_ready(Id id, const control::Ready& ready) {
  roster_.set_ready(id, ready.round);
  start_when_complete();
}

void Coordinator::on_leaving(Id id, const control::Leaving& leaving) {
  if (phase_ == Phase::kJoining && roster_.has(id)) {
    const std::string name = roster_.name(id);
    roster_.remove(id);
    if (leaving.is_final || round_ > 0) {
      told_.insert(id);
      const JoinFailure reason{name + ": " + leaving.reason.text, leaving.reason.exit_status};
      links_.send(id, control::Refusal{reason});
      refuse(reason);
    } else {
      links_.send_to_all(control::Waiting{name + " went before all had arrived (" + leaving.reason.text +
                                          "); waiting for it to come again"});
      expect_torchrun();
    }
  } else if ((phase_ == Phase::kRunning || phase_ == Phase::kEnding) && ended_.contains(id)) {
    numbers_.erase(id);  // it does not want to wait for the others
    asked_.erase(id);
    end_when_all_are_there();
  } else if (phase_ == Phase::kRunning && numbers_.contains(id)) {
    // It was told to stop before it heard that all are there.
    add_failure({.node = numbers_.at(id),
                 .exit_status = leaving.reason.exit_status,
                 .text = leaving.reason.text,
                 .time = std::chrono::system_clock::now(),
                 .is_final = true});
  }
}

void Coordinator::on_gone(Id id, const CoordinatorLinks::Loss& loss) {
  const std::string name = roster_.name(id);
  const bool was_there = roster_.has(id);
  const bool was_ready = roster_.is_ready(id, round_);
  roster_.remove(id);
  told_.insert(id);
  unaware_.erase(id);
  if (phase_ == Phase::kJoining && was_there) {
    if (round_ > 0) {
      // One that was told to stop before it came to this round ends with the status of the failure before.
      refuse({"the launcher of " + name + " is gone: " + loss.reason, was_ready ? 1 : last_status_});
    } else {
      links_.send_to_all(
          control::Waiting{name + " went before all had arrived (" + loss.reason + "); waiting for it to come again"});
      expect_torchrun();
    }
    return;
  }
  const auto number = numbers_.find(id);
  if (number == numbers_.end()) return;
  const FailureNotice notice{.node = number->second,
                             .exit_status = 1,
                             .text = beginning_of_loss(name) + loss.reason,
                             .time = loss.last,
                             .is_final = true};
  numbers_.erase(number);
  asked_.erase(id);
  add_loss(notice);
  if (phase_ == Phase::kStopping || phase_ == Phase::kStopped) lose_stopped(id, loss);
  if (phase_ == Phase::kDecided) lost_ = notice.text;
}

void Coordinator::start_when_complete() {
  if (phase_ == Phase::kJoining && roster_.is_complete(round_)) start();
}

void Coordinator::start() {
  for (const EventLoop::TimerId& timer : std::exchange(timers_, {})) loop_.cancel(timer);
  phase_ = Phase::kRunning;
  for (const auto& [id, place] : roster_.places()) numbers_.emplace(id, place.group_rank);
  others_ = numbers_.size() - std::min<std::size_t>(numbers_.size(), 1);
  for (const auto& [number, ranks] : roster_.foreign_places()) torchrun_->assign(number, ranks);
  if (roster_.has_foreign()) {
    torchrun_->watch_end();
  } else {
    torchrun_.reset();
  }
  const auto places = roster_.places();
  // This launcher's own node is the first that has come.
  const auto own =
      std::min_element(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [id, place] : places) {
    links_.send(id, control::Start{round_, place, store_->port(), own->second.group_rank, roster_.has_foreign()});
  }
}

void Coordinator::say_who_is_missing() {
  const Roster::Absent absent = roster_.absent(round_);
  links_.send_to_all(control::Waiting{"waiting for " + (absent.never_came.empty() ? absent.left : absent.never_came) +
                                      " at " + options_.meeting});
}

// Those that left may only have been the first to lose patience.
void Coordinator::on_join_timeout() {
  const Roster::Absent absent = roster_.absent(round_);
  std::string text;
  if (absent.never_came.empty()) {
    text = absent.left + " had arrived at " + options_.meeting + ", and left before all nodes were there";
  } else {
    text =
        absent.never_came + " did not arrive at " + options_.meeting + within_join_timeout(options_.join_timeout) +
        (absent.left.empty() ? ": was ddprun started on every node?" : "; " + absent.left + " had arrived, and left");
  }
  refuse({text, to_int(ExitStatus::kTimeout)});
}

void Coordinator::refuse(const JoinFailure& reason) {
  if (phase_ != Phase::kJoining) return;
  for (const EventLoop::TimerId& timer : std::exchange(timers_, {})) loop_.cancel(timer);
  phase_ = Phase::kRefused;
  refusal_ = reason;
  deadline_ = Clock::now() + (reason.exit_status == to_int(ExitStatus::kTimeout) ? 0s : kTelling);
  for (const Id id : roster_.ids()) {
    told_.insert(id);
    send_refusal(id, reason);
  }
  set_hearing_deadline();
  timers_.push_back(loop_.call_at(deadline_, [] {}));  // the loop is to wake up by then
}

// One that is there hears of it, where its connection has to be replaced first, too.
void Coordinator::send_refusal(Id id, const JoinFailure& reason) {
  if (id != own_) reading_.insert(id);
  links_.send(id, control::Refusal{reason});
}

// It waits longer for the coordinator than the coordinator for it, and when it comes it is to name the same cause.
void Coordinator::expect_again(Id id, const CoordinatorLinks::Loss& loss) {
  const bool is_decided = phase_ == Phase::kDecided;
  if (!loss.is_silent || !numbers_.contains(id) || (is_decided && !is_end_)) return;
  cut_off_.insert(id);
  cut_off_until_ = Clock::now() + control::nodes_patience(options_.node_timeout) - options_.node_timeout + kComingAgain;
}

void Coordinator::set_hearing_deadline() {
  hearing_deadline_ = Clock::now() + options_.node_timeout + kHearing;
  timers_.push_back(loop_.call_at(hearing_deadline_, [] {}));  // the loop is to wake up by then
}

bool Coordinator::has_told_all() const {
  if (phase_ != Phase::kRefused) return true;
  if (!reading_.empty() && Clock::now() < hearing_deadline_) return false;
  return told_.size() >= static_cast<std::size_t>(options_.host.nnodes) || Clock::now() >= deadline_;
}

}  // namespace launcher
