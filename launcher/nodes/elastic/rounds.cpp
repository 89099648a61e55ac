#include "launcher/nodes/elastic/rounds.h"

#include <algorithm>
#include <iterator>

#include "launcher/os/system/launch_error.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

// How long a new coordinator waits until the nodes of the previous round have found it, including the node of the
// previous coordinator if that was only silent. A coordinator that has lost all other nodes waits this long for those
// that return.
constexpr auto kRegroup = 3s;

constexpr const char* kLost = "the node that coordinated the job was lost, and the job is not restarted: ";

std::string count_of(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::vector<RestartBudget::Time> RestartBudget::recent(Time now) const {
  std::vector<Time> recent;
  std::copy_if(taken_.begin(), taken_.end(), std::back_inserter(recent),
               [now](Time time) { return now - time < std::chrono::hours(1); });
  return recent;
}

std::string RestartBudget::reason_to_end(Time now) const {
  return refusal(used_, static_cast<int>(recent(now).size()));
}

std::string RestartBudget::exceeded_budget_reason(Time now) const {
  return used_ == 0 ? "" : refusal(used_ - 1, static_cast<int>(recent(now).size()) - 1);
}

std::string RestartBudget::refusal(int used, int within_hour) const {
  if (used >= options_.max_restarts) {
    if (options_.max_restarts == 0) return "--max_restarts is 0";
    return "it was restarted " + std::to_string(used) + " times, as often as --max_restarts allows";
  }
  if (options_.restarts_per_hour > 0 && within_hour >= options_.restarts_per_hour) {
    return "it was restarted " + std::to_string(within_hour) +
           " times within an hour, as often as --restarts_per_hour allows";
  }
  return "";
}

void RestartBudget::take(Time now) {
  taken_ = recent(now);
  taken_.push_back(now);
  ++used_;
}

void RestartBudget::restore(int used, std::vector<Time> recent) {
  used_ = used;
  taken_ = std::move(recent);
}

Rounds::Rounds(RoundsOptions options, Time now, const History& history)
    : options_(options),
      budget_(options.budget),
      round_(history.rounds),
      expected_(std::clamp(history.nodes, 0, options.max_nodes)),
      join_deadline_(now + options.join_timeout),
      host_failures_(history.host_failures) {
  budget_.restore(history.restarts, history.recent_restarts);
  exceeded_budget_reason_ = budget_.exceeded_budget_reason(now);
  if (history.rounds > 0) options_.last_call = kRegroup;
}

bool Rounds::is_left_out(const std::string& host) const {
  const auto found = host_failures_.find(host);
  return options_.host_failures > 0 && found != host_failures_.end() && found->second >= options_.host_failures;
}

Rounds::Decisions Rounds::end_with(const std::string& text) {
  phase_ = Phase::kEnded;
  Decisions decisions;
  decisions.end = JoinFailure{text, 1};
  return decisions;
}

Rounds::Decisions Rounds::arrived(Id id, const std::string& host, Time now) {
  if (phase_ == Phase::kEnded) return {};
  if (!exceeded_budget_reason_.empty()) return end_with(kLost + exceeded_budget_reason_);
  if (is_left_out(host)) {
    const std::string text = "host " + host + " has failed " + std::to_string(options_.host_failures) +
                             " times and is left out of the job (--host_failures)";
    if (!coordinator_) return end_with(text);
    Decisions decisions;
    decisions.rejected.emplace_back(id, JoinFailure{text, 1});
    return decisions;
  }
  if (!coordinator_) coordinator_ = id;
  nodes_.emplace(id, Node{.host = host});
  alone_until_.reset();
  return decide(now);
}

Rounds::Decisions Rounds::ready(Id id, Time now, int round) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || phase_ == Phase::kEnded || found->second.is_ready || found->second.takes_part) return {};
  found->second.is_ready = true;
  if (phase_ == Phase::kJoining && round > round_) learn_round(round, now);
  if (!exceeded_budget_reason_.empty()) return end_with(kLost + exceeded_budget_reason_);
  return phase_ == Phase::kRunning ? wait_for_next(id) : decide(now);
}

// Learns of a round that began after the previous coordinator wrote the history. That coordinator was lost, which is
// already counted if the history contains an earlier round.
void Rounds::learn_round(int round, Time now) {
  const bool is_counted = !is_first_ || round_ > 0;
  round_ = round;
  if (is_counted) return;
  options_.last_call = kRegroup;
  last_call_.reset();
  budget_.take(now);
  exceeded_budget_reason_ = budget_.exceeded_budget_reason(now);
}

// Handles a node that is ready while a round runs.
Rounds::Decisions Rounds::wait_for_next(Id id) {
  Decisions decisions;
  const int there = participants();
  const std::string running = "the job runs with " + count_of(static_cast<std::size_t>(there), "node");
  if (there >= options_.max_nodes) {
    decisions.notices.emplace_back(id, running + ", as many as --nnodes allows: this node waits as a spare");
  } else if (!options_.join_restart || is_ending_) {
    decisions.notices.emplace_back(id, running + ": this node waits for its next restart");
  } else {
    decisions.stop = "a node has joined on host " + nodes_.at(id).host;
  }
  return decisions;
}

// A silent node may be cut off, or the coordinator may be. If the last other node is lost, they may return. They end if
// they do not find the coordinator for some time, so a coordinator that is alone must not wait longer for them.
Rounds::Decisions Rounds::left(Id id, Time now, bool is_silent) {
  nodes_.erase(id);
  const bool was_last = others_.erase(id) > 0 && others_.empty();
  is_regrouping_ = is_regrouping_ || (is_silent && was_last);
  if (is_silent && nodes_.size() == 1) alone_until_ = now + options_.return_timeout;
  return phase_ == Phase::kJoining ? decide(now) : Decisions{};
}

int Rounds::participants() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second.takes_part; }));
}

std::vector<Rounds::Id> Rounds::ready_nodes() const {
  std::vector<Id> ids;
  for (const auto& [id, node] : nodes_) {
    if (node.is_ready && !is_left_out(node.host)) ids.push_back(id);
  }
  return ids;
}

bool Rounds::are_all_ready() const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& entry) { return entry.second.is_ready || is_left_out(entry.second.host); });
}

// Returns the coordinator's node and, of the others, those that arrived first.
std::vector<Rounds::Id> Rounds::selected_nodes() const {
  std::vector<Id> ids = ready_nodes();
  std::stable_partition(ids.begin(), ids.end(), [&](Id id) { return id == *coordinator_; });
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(options_.max_nodes)));
  if (options_.order_by_host) {
    std::stable_sort(ids.begin() + 1, ids.end(), [&](Id a, Id b) { return nodes_.at(a).host < nodes_.at(b).host; });
  }
  return ids;
}

// Begins a round if that is possible. It waits for all connected nodes, including those whose ranks are being stopped.
Rounds::Decisions Rounds::decide(Time now) {
  if (phase_ != Phase::kJoining || !coordinator_) return {};
  const auto own = nodes_.find(*coordinator_);
  if (own == nodes_.end() || !own->second.is_ready) return {};
  const auto ready = static_cast<int>(ready_nodes().size());
  const bool is_late = now >= join_deadline_;
  if (ready < options_.min_nodes) {
    last_call_.reset();
    if (alone_until_ && now >= *alone_until_) {
      return end_with(
          "this node, which coordinates the job, has had no connection to any other node for so long that "
          "the other nodes have ended");
    }
    if (!is_late) return {};
    phase_ = Phase::kEnded;
    Decisions decisions;
    decisions.end =
        JoinFailure{joined_nodes_text() + ", and no others joined within --join_timeout", to_int(ExitStatus::kTimeout)};
    return decisions;
  }
  if (ready >= options_.max_nodes || is_late) return begin();
  if (!is_first_ && !is_regrouping_) return are_all_ready() ? begin() : Decisions{};
  if (expected_ > 0 && ready >= expected_) return begin();
  if (!last_call_) last_call_ = now + (is_regrouping_ ? kRegroup : options_.last_call);
  return now >= *last_call_ ? begin() : Decisions{};
}

Rounds::Decisions Rounds::begin() {
  Decisions decisions;
  decisions.begin = Begin{round_, selected_nodes()};
  for (auto& [id, node] : nodes_) node.takes_part = false;
  for (const Id id : decisions.begin->nodes) {
    nodes_.at(id).takes_part = true;
    nodes_.at(id).is_ready = false;
  }
  phase_ = Phase::kRunning;
  alone_until_.reset();
  is_regrouping_ = false;
  expected_ = static_cast<int>(decisions.begin->nodes.size());
  others_ = {decisions.begin->nodes.begin() + 1, decisions.begin->nodes.end()};
  is_first_ = false;
  is_ending_ = false;
  for (const auto& [id, node] : nodes_) {
    if (!node.is_ready) continue;
    for (auto& words : wait_for_next(id).notices) decisions.notices.push_back(std::move(words));
  }
  return decisions;
}

void Rounds::begin_joining(Time now) {
  phase_ = Phase::kJoining;
  ++round_;
  join_deadline_ = now + options_.join_timeout;
  last_call_.reset();
  for (auto& [id, node] : nodes_) node.takes_part = false;
}

std::string Rounds::cause_to_end(Cause cause, const std::string& host, Time now) {
  if (cause == Cause::kFinal) return "this end is final";
  const bool is_loss = cause == Cause::kCoordinatorLoss;
  if (cause != Cause::kFailure && !is_loss) return "";
  if (std::string reason = budget_.reason_to_end(now); !reason.empty()) return reason;
  const auto own = nodes_.find(*coordinator_);
  ++host_failures_[host];
  if (!is_loss && own != nodes_.end() && is_left_out(own->second.host)) {
    return "host " + own->second.host + ", which coordinates the job, has failed " +
           std::to_string(options_.host_failures) + " times (--host_failures)";
  }
  budget_.take(now);
  return "";
}

std::string Rounds::end_round(Cause cause, const std::string& host, Time now) {
  if (phase_ != Phase::kRunning) return "it has ended";
  std::string reason = cause_to_end(cause, host, now);
  if (reason.empty()) {
    begin_joining(now);
  } else {
    phase_ = Phase::kEnded;
  }
  return reason;
}

Rounds::Decisions Rounds::left_out() const {
  Decisions decisions;
  for (const auto& [id, node] : nodes_) {
    if (!is_left_out(node.host)) continue;
    decisions.rejected.emplace_back(
        id, JoinFailure{"host " + node.host + " has failed " + std::to_string(options_.host_failures) +
                            " times and is left out of the job (--host_failures)",
                        1});
  }
  return decisions;
}

Rounds::Decisions Rounds::at(Time now) {
  return phase_ == Phase::kJoining ? decide(now) : Decisions{};
}

std::optional<Rounds::Time> Rounds::next_time() const {
  if (phase_ != Phase::kJoining) return std::nullopt;
  Time next = join_deadline_;
  if (last_call_) next = std::min(next, *last_call_);
  const auto own = coordinator_ ? nodes_.find(*coordinator_) : nodes_.end();
  const bool is_ready = own != nodes_.end() && own->second.is_ready;
  if (alone_until_ && is_ready) next = std::min(next, *alone_until_);
  return next;
}

History Rounds::history(Time now) const {
  return {.rounds = phase_ == Phase::kJoining ? round_ : round_ + 1,
          .nodes = std::max((phase_ == Phase::kRunning ? participants() : static_cast<int>(nodes_.size())) - 1, 0),
          .restarts = budget_.used(),
          .recent_restarts = budget_.recent(now),
          .host_failures = host_failures_};
}

std::string Rounds::joined_nodes_text() const {
  const std::size_t ready = ready_nodes().size();
  return std::to_string(ready) + " of " + std::to_string(options_.min_nodes) + " to " +
         std::to_string(options_.max_nodes) + " nodes " + (ready == 1 ? "has" : "have") + " joined";
}

}  // namespace launcher::elastic
