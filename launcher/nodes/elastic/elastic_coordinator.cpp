#include "launcher/nodes/elastic/elastic_coordinator.h"

#include <algorithm>

#include "launcher/os/system/line.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

std::vector<NodeRanks> ranks_of(const std::vector<Rounds::Id>& nodes,
                                const std::map<Rounds::Id, control::Hello>& hellos) {
  std::vector<RoleInfo> infos;
  for (const Rounds::Id id : nodes) {
    const control::Hello& hello = hellos.at(id);
    infos.push_back({hello.role, static_cast<int>(infos.size()), hello.local_world_size});
  }
  return assign_ranks(infos);
}

}  // namespace

ElasticCoordinator::ElasticCoordinator(EventLoop& loop, Messages& messages, CoordinatorOptions options, JobOptions job)
    : RoundCoordinator(loop, messages, std::move(options)),
      messages_(messages),
      roster_(options_.host, options_.order),
      rounds_(job.rounds, Clock::now(), job.history),
      search_time_(job.is_replaceable || job.rounds.budget.max_restarts == 0 ? 0ms : job.rounds.return_timeout),
      min_nodes_(static_cast<std::size_t>(std::max(job.rounds.min_nodes, 2))),
      is_replaceable_(job.is_replaceable),
      on_change_(std::move(job.on_change)) {}

std::string ElasticCoordinator::name(Id id) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return "a node";
  return "host " + found->second.host + ", process " + std::to_string(found->second.pid);
}

void ElasticCoordinator::begin_joining() {
  call_after(kSilentWait, [this] { print_missing_nodes(); });
  apply(rounds_.at(Clock::now()));
}

void ElasticCoordinator::print_missing_nodes() {
  links_.send_to_all(control::Waiting{"waiting for more nodes at " + options_.rendezvous_address + ": " +
                                      rounds_.joined_nodes_text()});
}

void ElasticCoordinator::set_timer() {
  timer_.cancel();
  const auto next = rounds_.next_time();
  if (!next || job_end_) return;
  timer_.start_at(*next, [this] { apply(rounds_.at(Clock::now())); });
}

void ElasticCoordinator::apply(const Rounds::Decisions& decisions) {
  if (has_handed_over_) return;
  for (const auto& [id, reason] : decisions.rejected) reject(id, reason);
  for (const auto& [id, text] : decisions.notices) links_.send(id, control::Waiting{text, rounds_.is_running()});
  if (decisions.end) refuse(*decisions.end);
  if (decisions.begin) begin(*decisions.begin);
  if (decisions.stop) stop_round(*decisions.stop);
  set_timer();
}

void ElasticCoordinator::reject(Id id, const JoinFailure& reason) {
  rejected_[id] = reason;
  links_.send(id, control::Refusal{reason});
  forget(id);
}

void ElasticCoordinator::forget(Id id, bool is_silent) {
  if (nodes_.erase(id) > 0) apply(rounds_.left(id, Clock::now(), is_silent));
}

// Refuses a node whose options do not fit. Such a problem does not end the job of the other nodes.
void ElasticCoordinator::on_hello(Id id, const control::Hello& hello) {
  if (!own_id_) own_id_ = id;
  lost_nodes_.erase({hello.host, hello.pid});
  const auto reason = roster_.reason_to_refuse(hello);
  if (job_end_ || (reason && id == *own_id_)) {
    if (!job_end_) refuse(*reason);
    send_refusal(id, *job_end_);
    return;
  }
  if (reason) {
    messages_.print(reason->text + ": it is not admitted to the job");
    reject(id, *reason);
    return;
  }
  nodes_[id] = hello;
  apply(rounds_.arrived(id, hello.host, Clock::now()));
}

void ElasticCoordinator::on_ready(Id id, const control::Ready& ready) {
  if (const auto away = rejected_.find(id); away != rejected_.end()) {
    links_.send(id, control::Refusal{away->second});  // the node may have missed the first refusal
  } else if (job_end_) {
    send_refusal(id, *job_end_);
  } else {
    apply(rounds_.ready(id, Clock::now(), ready.round));
  }
}

void ElasticCoordinator::on_leaving(Id id, const control::Leaving& leaving) {
  const std::string who = name(id);
  if (id == own_id_) {
    refuse({who + ", which coordinates the job: " + leaving.reason.text, leaving.reason.exit_status});
  } else if (ended_.contains(id)) {
    numbers_.erase(id);  // the node does not want to wait for the others
    unanswered_.erase(id);
    end_when_all_confirmed();
  } else if (const auto number = numbers_.find(id); number != numbers_.end() && phase_ == Phase::kRunning) {
    // The round began while the node was leaving.
    const FailureNotice notice{.node = number->second,
                               .exit_status = leaving.reason.exit_status,
                               .text = leaving.reason.text,
                               .time = std::chrono::system_clock::now(),
                               .may_rejoin = true};
    numbers_.erase(number);
    forget(id);
    add_failure(notice);
  } else {
    forget(id);
  }
}

void ElasticCoordinator::on_gone(Id id, const CoordinatorLinks::Loss& loss) {
  const std::string who = name(id);
  rejected_.erase(id);
  uninformed_.erase(id);
  unanswered_.erase(id);
  await_again(id, loss);
  const auto number = numbers_.find(id);
  if (number == numbers_.end()) {
    forget(id, loss.is_silent);
    return;
  }
  const FailureNotice notice{
      .node = number->second, .exit_status = 1, .text = loss_prefix(who) + loss.reason, .time = loss.last};
  numbers_.erase(number);
  forget(id, loss.is_silent);
  add_loss(notice);
}

void ElasticCoordinator::await_again(Id id, const CoordinatorLinks::Loss& loss) {
  const auto node = nodes_.find(id);
  if (node == nodes_.end() || !loss.is_silent || search_time_ == 0ms) return;
  const auto until = Clock::now() + search_time_;
  lost_nodes_[{node->second.host, node->second.pid}] = until;
  loop_.call_at(until, [] {});  // the loop is to wake up by then
}

bool ElasticCoordinator::awaits_lost_nodes() const {
  const auto now = Clock::now();
  return job_end_ &&
         std::any_of(lost_nodes_.begin(), lost_nodes_.end(), [&](const auto& node) { return now < node.second; });
}

void ElasticCoordinator::begin(const Rounds::Begin& round) {
  cancel_timers();
  phase_ = Phase::kRunning;
  round_ = round.round;
  hosts_.clear();
  const std::vector<NodeRanks> ranks = ranks_of(round.nodes, nodes_);
  const int nodes = static_cast<int>(round.nodes.size());
  for (const Id id : round.nodes) {
    const int number = size();
    numbers_.emplace(id, number);
    hosts_.push_back(nodes_.at(id).host);
    const NodePlace place{number, nodes, ranks.at(static_cast<std::size_t>(number))};
    links_.send(id, control::Start{.round = round_, .place = place, .store_port = store_->port()});
  }
  on_change_(Change::kRound);
}

// Ends the round in the same way as a failure, so that all nodes agree on the reason. If a real failure happened
// earlier, it is the reason.
void ElasticCoordinator::stop_round(const std::string& why) {
  add_failure(
      {.node = 0, .exit_status = 1, .text = why, .time = std::chrono::system_clock::now(), .is_regrouping = true});
}

FailureNotice ElasticCoordinator::decide_outcome(FailureNotice first) {
  const std::string& host = hosts_.at(std::min(static_cast<std::size_t>(first.node), hosts_.size() - 1));
  const Rounds::Cause cause = cause_of(first, is_replaceable_);
  const std::string reason = rounds_.end_round(cause, host, Clock::now());
  first.is_final = !reason.empty();
  // The nodes do not wait for a common status: they continue, or end with the status of this notice.
  first.stop_signal = 0;
  if (first.is_final) {
    const std::string why = cause == Rounds::Cause::kFinal ? "" : "the job is not restarted: " + reason;
    if (!why.empty()) links_.send_to_all(control::Waiting{why});
    dismiss_spares({"the job has ended: " + first.text, std::max(first.exit_status, 1)});
  } else {
    apply(rounds_.left_out());
  }
  has_handed_over_ = !first.is_final && hands_over(first, cause);
  on_change_(first.is_final ? Change::kEnd : has_handed_over_ ? Change::kHandOver : Change::kRound);
  set_timer();
  return first;
}

void ElasticCoordinator::on_success() {
  dismiss_spares({"the job has ended successfully without this node", 0});
  on_change_(Change::kEnd);
}

// Refuses the nodes that wait as spares; nodes that arrive later are refused, too.
void ElasticCoordinator::dismiss_spares(const JoinFailure& reason) {
  job_end_ = reason;
  for (const auto& [id, hello] : nodes_) {
    if (!numbers_.contains(id)) send_refusal(id, reason);
  }
}

// Ends coordination. The other nodes see that their connections end, and look for the next coordinator. If a round
// runs, it ends as a failure, which that coordinator counts.
void ElasticCoordinator::hand_over_coordination() {
  if (!is_replaceable_ || has_handed_over_ || job_end_) return;
  has_handed_over_ = true;
  const bool is_running = rounds_.is_running();
  cancel_timers();
  phase_ = Phase::kDecided;  // this launcher decides nothing from now on
  on_change_(is_running ? Change::kLoss : Change::kHandOver);
}

void ElasticCoordinator::refuse(const JoinFailure& reason) {
  if (job_end_) return;
  cancel_timers();
  phase_ = Phase::kRefused;
  job_end_ = reason;
  set_acknowledgement_deadline();
  for (const auto& [id, hello] : nodes_) send_refusal(id, reason);
  on_change_(Change::kEnd);
}

bool ElasticCoordinator::has_informed_all() const {
  return phase_ != Phase::kRefused || refusals_unread_.empty() || Clock::now() >= acknowledgement_deadline_;
}

}  // namespace launcher::elastic
