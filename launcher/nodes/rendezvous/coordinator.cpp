#include "launcher/nodes/rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "launcher/nodes/rendezvous/rendezvous.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long the coordinator of a job that cannot begin waits to inform nodes that have not connected yet: they were
// started at about the same time.
constexpr auto kInformTimeout = 5s;

}  // namespace

Coordinator::Coordinator(EventLoop& loop, Messages& messages, CoordinatorOptions options)
    : RoundCoordinator(loop, messages, std::move(options)), roster_(options_.host, options_.order) {}

// If torchrun nodes take part, the count of ended nodes is in the store. Otherwise the base class counts them.
bool Coordinator::is_end_counted_elsewhere() {
  if (torchrun_) torchrun_->node_ended(size());
  return torchrun_ != nullptr;
}

void Coordinator::begin_joining() {
  if (round_ == 0 && options_.order == NodeOrder::kByNodeRank && !options_.secret) {
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
                                       if (phase_ == Phase::kRunning) ask_all_to_confirm(Phase::kEnding);
                                     },
                                 .on_twice = [this](int node) { on_duplicate_foreign_node(node); }});
    expect_torchrun();
  }
  call_after(kSilentWait, [this] { print_missing_nodes(); });
  call_after(options_.join_timeout, [this] { on_join_timeout(); });
  start_when_complete();
}

// Two torchrun nodes have the same number, or one was started again. In both cases its ranks cannot join the others.
void Coordinator::on_duplicate_foreign_node(int node) {
  add_failure({.node = node,
               .exit_status = to_int(ExitStatus::kLauncherError),
               .text = "--node_rank " + std::to_string(node) + " is used twice, both times by a torchrun node",
               .time = std::chrono::system_clock::now(),
               .is_final = true});
}

void Coordinator::expect_torchrun() {
  if (!torchrun_) return;
  if (const auto missing = roster_.lowest_missing()) torchrun_->expect(*missing);
}

void Coordinator::on_hello(Id id, const control::Hello& hello) {
  if (roster_.has(id)) return;
  if (hello.launcher == options_.host.launcher && !roster_.ids().empty()) {
    // This launcher has connected to itself while it searched for another coordinator, for example through a virtual
    // address.
    links_.drop(id);
    return;
  }
  if (hello.launcher == options_.host.launcher) own_id_ = id;
  if (phase_ == Phase::kRefused) {
    informed_.insert(id);
    send_refusal(id, refusal_);
    return;
  }
  auto reason = roster_.admit(id, hello);
  if (!reason && torchrun_ && torchrun_->has_arrived(hello.node_rank)) {
    reason = roster_.admit_foreign({.role = "", .node = hello.node_rank, .local_world_size = 1});
  }
  if (reason && phase_ == Phase::kJoining && round_ <= 0) {
    informed_.insert(id);
    send_refusal(id, *reason);
    refuse(*reason);
  } else if (reason || phase_ != Phase::kJoining || round_ > 0) {
    links_.send(id, control::Refusal{reason.value_or(
                        JoinFailure{"the job has started without this node", to_int(ExitStatus::kLauncherError)})});
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
      informed_.insert(id);
      const JoinFailure reason{name + ": " + leaving.reason.text, leaving.reason.exit_status};
      links_.send(id, control::Refusal{reason});
      refuse(reason);
    } else {
      links_.send_to_all(control::Waiting{name + " left before all had arrived (" + leaving.reason.text +
                                          "); waiting for it to return"});
      expect_torchrun();
    }
  } else if ((phase_ == Phase::kRunning || phase_ == Phase::kEnding) && ended_.contains(id)) {
    numbers_.erase(id);  // the node does not want to wait for the others
    unanswered_.erase(id);
    end_when_all_confirmed();
  } else if (phase_ == Phase::kRunning && numbers_.contains(id)) {
    // The node received a signal to stop before it learned that all nodes had arrived.
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
  informed_.insert(id);
  uninformed_.erase(id);
  if (phase_ == Phase::kJoining && was_there) {
    if (round_ > 0) {
      // A node that received a signal to stop before it joined this round ends with the status of the previous failure.
      refuse({"the launcher of " + name + " is gone: " + loss.reason, was_ready ? 1 : last_status_});
    } else {
      links_.send_to_all(
          control::Waiting{name + " left before all had arrived (" + loss.reason + "); waiting for it to return"});
      expect_torchrun();
    }
    return;
  }
  const auto number = numbers_.find(id);
  if (number == numbers_.end()) return;
  const FailureNotice notice{.node = number->second,
                             .exit_status = 1,
                             .text = loss_prefix(name) + loss.reason,
                             .time = loss.last,
                             .is_final = true};
  numbers_.erase(number);
  unanswered_.erase(id);
  add_loss(notice);
  if (phase_ == Phase::kStopping || phase_ == Phase::kStopped) lose_stopped(id, loss);
  if (phase_ == Phase::kDecided) lost_ = notice.text;
}

void Coordinator::start_when_complete() {
  if (phase_ == Phase::kJoining && roster_.is_complete(round_)) start();
}

void Coordinator::start() {
  cancel_timers();
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
  // This launcher's own node connected first, so it has the lowest ID.
  const auto own =
      std::min_element(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [id, place] : places) {
    links_.send(id, control::Start{round_, place, store_->port(), own->second.group_rank, roster_.has_foreign()});
  }
}

void Coordinator::print_missing_nodes() {
  const Roster::MissingNodes missing = roster_.missing_nodes(round_);
  links_.send_to_all(control::Waiting{"waiting for " +
                                      (missing.never_arrived.empty() ? missing.left : missing.never_arrived) + " at " +
                                      options_.rendezvous_address});
}

// Nodes that have left may only have had a shorter timeout, so they are reported separately.
void Coordinator::on_join_timeout() {
  const Roster::MissingNodes missing = roster_.missing_nodes(round_);
  std::string text;
  if (missing.never_arrived.empty()) {
    text = missing.left + " had arrived at " + options_.rendezvous_address + ", and left before all nodes were there";
  } else {
    text =
        missing.never_arrived + " did not arrive at " + options_.rendezvous_address +
        within_join_timeout(options_.join_timeout) +
        (missing.left.empty() ? ": was ddprun started on every node?" : "; " + missing.left + " had arrived, and left");
  }
  refuse({text, to_int(ExitStatus::kTimeout)});
}

void Coordinator::refuse(const JoinFailure& reason) {
  if (phase_ != Phase::kJoining) return;
  cancel_timers();
  phase_ = Phase::kRefused;
  refusal_ = reason;
  deadline_ = Clock::now() + (reason.exit_status == to_int(ExitStatus::kTimeout) ? 0s : kInformTimeout);
  for (const Id id : roster_.ids()) {
    informed_.insert(id);
    send_refusal(id, reason);
  }
  set_acknowledgement_deadline();
  timers_.push_back(loop_.call_at(deadline_, [] {}));  // the loop is to wake up by then
}

bool Coordinator::has_informed_all() const {
  if (phase_ != Phase::kRefused) return true;
  if (!refusals_unread_.empty() && Clock::now() < acknowledgement_deadline_) return false;
  return informed_.size() >= static_cast<std::size_t>(options_.host.nnodes) || Clock::now() >= deadline_;
}

}  // namespace launcher
