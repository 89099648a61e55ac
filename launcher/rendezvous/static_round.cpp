#include "launcher/rendezvous/static_round.h"

#include <utility>

#include "launcher/rendezvous/static_messages.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// Shorter waits need no explanation.
constexpr auto kSilentWait = 5s;

std::string role_info_key(int node) {
  return "torchelastic/role_info/" + std::to_string(node);
}
std::string ranks_key(int node) {
  return "torchelastic/assigned_ranks/" + std::to_string(node);
}
constexpr const char* kMembers = "torchelastic/agent/terminal_state/num_members";
constexpr const char* kLastMember = "torchelastic/agent/terminal_state/last_member";
// torchrun nodes do not look at these.
constexpr const char* kFailure = "ddprun/first_failure";
constexpr const char* kLaunchers = "ddprun/launchers";  // ddprun nodes besides node 0
constexpr const char* kHeard = "ddprun/heard";          // those of them that know of the failure
std::string left_key(int node) {                        // it had arrived, and went before all had
  return "ddprun/left/" + std::to_string(node);
}

void append_node(std::string& list, int node) {
  list.append(list.empty() ? "node " : ", ").append(std::to_string(node));
}

}  // namespace

StaticRound::StaticRound(EventLoop& loop, Messages& messages, StaticRoundOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      client_(loop, options_.host, options_.port, [this] { on_lost(); }) {
  const auto now = EventLoop::Clock::now();
  const std::string place =
      (options_.node_rank == 0 ? "this node's" : options_.host) + " port " + std::to_string(options_.port);
  timers_.push_back(loop_.call_at(now + kSilentWait, [this, place] {
    if (!joined_ && !join_failure_) messages_.say("waiting for " + missing_nodes() + " at " + place);
  }));
  timers_.push_back(loop_.call_at(now + options_.join_timeout, [this, place] {
    if (!joined_) fail_to_join(timeout_text(place));
  }));

  if (options_.node_rank != 0) client_.add(key(kLaunchers), 1, [](std::int64_t) {});
  client_.add("init/", 1, [](std::int64_t) {});  // torchrun's node 0 counts these
  client_.set(key(role_info_key(options_.node_rank)),
              to_json(RoleInfo{options_.role, options_.node_rank, options_.local_world_size}));
  if (options_.node_rank == 0) {
    collect(0);
    return;
  }
  client_.wait(key(ranks_key(options_.node_rank)), [this] {
    client_.get(key(ranks_key(options_.node_rank)), [this](const std::string& text) {
      if (const auto ranks = parse_node_ranks(text)) {
        join(*ranks);
      } else {
        fail_to_join("node 0 sent no ranks but '" + text.substr(0, 80) + "'");
      }
    });
  });
}

StaticRound::~StaticRound() {
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
  // The others are not to count on us.
  if (joined_ || options_.node_rank == 0) return;
  client_.set(key(left_key(options_.node_rank)), "1");
  client_.remove_and_leave(key(role_info_key(options_.node_rank)));
}

// Node 0: waits for one node after the other, then tells each its ranks.
void StaticRound::collect(int node) {
  if (node == options_.nnodes) {
    // One that was stopped meanwhile is waited for again; if it was started once more, it may have other ranks.
    for (auto info = arrived_.begin(); info != arrived_.end(); ++info) {
      const auto now = parse_role_info(options_.look_up(key(role_info_key(info->node))));
      if (!now || now->node != info->node) {
        const int missing = info->node;
        arrived_.erase(info, arrived_.end());
        collect(missing);
        return;
      }
      *info = *now;
    }
    const std::vector<NodeRanks> all = assign_ranks(arrived_);
    for (int i = 0; i < options_.nnodes; ++i) client_.set(key(ranks_key(i)), to_json(all[static_cast<std::size_t>(i)]));
    join(all.front());
    return;
  }
  client_.wait(key(role_info_key(node)), [this, node] {
    client_.get(key(role_info_key(node)), [this, node](const std::string& text) {
      const auto info = parse_role_info(text);
      if (!info || info->node != node) {
        fail_to_join("node " + std::to_string(node) + " introduced itself as '" + text.substr(0, 80) + "'");
        return;
      }
      arrived_.push_back(*info);
      collect(node + 1);
    });
  });
}

void StaticRound::fail_to_join(std::string reason) {
  if (!join_failure_) join_failure_ = std::move(reason);
}

std::string StaticRound::missing_nodes() const {
  if (options_.node_rank != 0) {
    if (client_.is_connected()) return "the other nodes (node 0 knows which)";
    return "node 0" + (client_.problem().empty() ? "" : " (" + client_.problem() + ")");
  }
  const Absent absent = absent_nodes();
  return absent.never_came.empty() ? absent.left : absent.never_came;
}

// Node 0. Those that left may only have been the first to lose patience.
StaticRound::Absent StaticRound::absent_nodes() const {
  Absent absent;
  for (int node = 0; node < options_.nnodes; ++node) {
    if (!options_.look_up(key(role_info_key(node))).empty()) continue;
    const bool has_left = !options_.look_up(key(left_key(node))).empty();
    append_node(has_left ? absent.left : absent.never_came, node);
  }
  return absent;
}

std::string StaticRound::timeout_text(const std::string& place) const {
  const std::string end = " did not arrive at " + place + " in time";
  if (options_.node_rank != 0) return missing_nodes() + end;
  const auto [never_came, left] = absent_nodes();
  if (never_came.empty()) return left + " had arrived at " + place + ", and left before all nodes were there";
  return never_came + end + (left.empty() ? "" : "; " + left + " had arrived, and left");
}

void StaticRound::on_lost() {
  if (left_) return;
  if (leaving_) {
    left_ = true;  // node 0 went first; it does so only when all is over
  } else if (!joined_) {
    fail_to_join("node 0 closed the connection");
  } else if (!first_failure_) {
    fail({0, 1, "the connection to node 0 broke"}, false);
  }
}

// From now on other nodes' failures are listened for.
void StaticRound::join(const NodeRanks& ranks) {
  joined_ = true;
  watcher_.emplace(loop_, options_.host, options_.port, [] {});
  watcher_->wait(key(kFailure),
                 [this] { watcher_->get(key(kFailure), [this](const std::string& text) { hear(text); }); });
  options_.on_joined(ranks);
}

void StaticRound::announce(const FailureNotice& notice) {
  // Only the first one stays; the answer tells whose it is.
  client_.compare_set(key(kFailure), "", to_json(notice), [this](const std::string& text) { hear(text); });
}

void StaticRound::hear(const std::string& notice) {
  if (first_failure_) return;
  if (options_.node_rank != 0) client_.add(key(kHeard), 1, [](std::int64_t) {});
  FailureNotice failure = parse_failure_notice(notice).value_or(FailureNotice{0, 1, "another node failed"});
  const bool is_own = failure.node == options_.node_rank;
  fail(std::move(failure), is_own);
}

void StaticRound::fail(FailureNotice notice, bool is_own) {
  first_failure_ = std::move(notice);
  options_.on_failure(*first_failure_, is_own);
}

bool StaticRound::have_all_heard() const {
  return options_.look_up(key(kHeard)) == options_.look_up(key(kLaunchers));
}

void StaticRound::leave() {
  leaving_ = true;
  client_.add(key(kMembers), 1, [this](std::int64_t members) {
    if (members == options_.nnodes) client_.set(key(kLastMember), "done");
  });
  client_.wait(key(kLastMember), [this] { left_ = true; });
}

}  // namespace launcher
