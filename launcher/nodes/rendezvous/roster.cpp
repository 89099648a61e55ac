#include "launcher/nodes/rendezvous/roster.h"

#include <algorithm>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using control::Hello;

JoinFailure disagreement(const std::string& text) {
  return {text, to_int(ExitStatus::kLauncherError)};
}

// The number of nodes in the form of --nnodes.
std::string nodes(const Hello& hello) {
  return (hello.min_nodes > 0 ? std::to_string(hello.min_nodes) + ":" : "") + std::to_string(hello.nnodes);
}

void append_node(std::string& list, int node) {
  list.append(list.empty() ? "node " : ", ").append(std::to_string(node));
}

}  // namespace

Roster::Roster(Hello host, NodeOrder order) : host_(std::move(host)), order_(order) {
  for (int number = 0; number < host_.nnodes; ++number) missing_.insert(missing_.end(), number);
}

std::string Roster::name(const Hello& hello) const {
  if (hello.node_rank == control::kAnyNode) return "host " + hello.host + ", process " + std::to_string(hello.pid);
  return "node " + std::to_string(hello.node_rank) + " (host " + hello.host + ")";
}

std::string Roster::name(Id id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? "a node" : name(found->second.hello);
}

// Returns the first difference of the options, or "".
std::string Roster::difference(const Hello& hello) const {
  const auto differ = [&](const char* what, const auto& theirs, const auto& ours) {
    return name(hello) + " was started with " + what + " " + theirs + ", " + name(host_) + " with " + what + " " + ours;
  };
  if (hello.protocol != host_.protocol) {
    return "incompatible versions of ddprun: " + name(hello) + " has " + hello.version + ", " + name(host_) + " " +
           host_.version;
  }
  if (hello.backend != host_.backend) return differ("--rdzv_backend", hello.backend, host_.backend);
  if (hello.run_id != host_.run_id) return differ("--rdzv_id", hello.run_id, host_.run_id);
  if (hello.nnodes != host_.nnodes || hello.min_nodes != host_.min_nodes) {
    return differ("--nnodes", nodes(hello), nodes(host_));
  }
  if (hello.max_restarts != host_.max_restarts) {
    return differ("--max_restarts", std::to_string(hello.max_restarts), std::to_string(host_.max_restarts));
  }
  return "";
}

std::optional<JoinFailure> Roster::reason_to_refuse(const Hello& hello) const {
  if (hello.start_failure) {
    return JoinFailure{name(hello) + " could not start: " + hello.start_failure->text,
                       hello.start_failure->exit_status};
  }
  const std::string text = difference(hello);
  return text.empty() ? std::nullopt : std::optional(disagreement("the nodes disagree: " + text));
}

std::optional<JoinFailure> Roster::admit(Id id, const Hello& hello) {
  if (auto reason = reason_to_refuse(hello)) return reason;
  if ((hello.node_rank == control::kAnyNode) != (order_ != NodeOrder::kByNodeRank) || hello.node_rank >= host_.nnodes) {
    return disagreement("the nodes disagree: " + name(hello) + " does not fit --nnodes " +
                        std::to_string(host_.nnodes));
  }
  if (const auto twin = by_number_.find(hello.node_rank); twin != by_number_.end()) {
    const Hello& other = nodes_.at(twin->second).hello;
    return disagreement("--node_rank " + std::to_string(hello.node_rank) + " is used twice: by host " + other.host +
                        ", process " + std::to_string(other.pid) + ", and by host " + hello.host + ", process " +
                        std::to_string(hello.pid) + "; give each node its own number");
  }
  if (foreign_.contains(hello.node_rank)) {
    return disagreement("--node_rank " + std::to_string(hello.node_rank) +
                        " is used twice: by a torchrun node, and by host " + hello.host + ", process " +
                        std::to_string(hello.pid));
  }
  if (nodes_.size() >= static_cast<std::size_t>(host_.nnodes)) {
    return disagreement("all " + std::to_string(host_.nnodes) + " nodes of --nnodes had already arrived when " +
                        name(hello) + " came");
  }
  nodes_.emplace(id, Node{hello});
  if (order_ == NodeOrder::kByNodeRank) by_number_[hello.node_rank] = id;
  missing_.erase(hello.node_rank);
  ++ready_[-1];
  left_.erase(hello.node_rank);
  if (hello.node_rank == control::kAnyNode && left_before_numbering_ > 0) --left_before_numbering_;
  return std::nullopt;
}

std::optional<JoinFailure> Roster::admit_foreign(const RoleInfo& info) {
  if (const auto twin = by_number_.find(info.node); twin != by_number_.end()) {
    const Hello& other = nodes_.at(twin->second).hello;
    return disagreement("--node_rank " + std::to_string(info.node) +
                        " is used twice: by a torchrun node, and by host " + other.host + ", process " +
                        std::to_string(other.pid));
  }
  foreign_[info.node] = info;
  missing_.erase(info.node);
  return std::nullopt;
}

void Roster::set_ready(Id id, int round) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  --ready_[found->second.ready_round];
  found->second.ready_round = round;
  ++ready_[round];
}

bool Roster::is_ready(Id id, int round) const {
  const auto found = nodes_.find(id);
  return found != nodes_.end() && found->second.ready_round == round;
}

void Roster::remove(Id id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  if (order_ == NodeOrder::kByNodeRank) {
    left_.insert(found->second.hello.node_rank);
  } else {
    ++left_before_numbering_;
  }
  --ready_[found->second.ready_round];
  if (by_number_.erase(found->second.hello.node_rank) != 0) missing_.insert(found->second.hello.node_rank);
  nodes_.erase(found);
}

bool Roster::is_complete(int round) const {
  return nodes_.size() + foreign_.size() == static_cast<std::size_t>(host_.nnodes) &&
         (nodes_.empty() || (ready_.contains(round) && ready_.at(round) == static_cast<int>(nodes_.size())));
}

std::optional<int> Roster::lowest_missing() const {
  return missing_.empty() ? std::nullopt : std::optional(*missing_.begin());
}

Roster::MissingNodes Roster::missing_nodes(int round) const {
  MissingNodes missing;
  std::set<int> there;
  int ready = 0;
  for (const auto& [id, node] : nodes_) {
    if (node.ready_round != round) continue;
    there.insert(node.hello.node_rank);
    ++ready;
  }
  if (order_ != NodeOrder::kByNodeRank) {
    const int never = host_.nnodes - ready - left_before_numbering_;
    const std::string all = " of " + std::to_string(host_.nnodes) + " nodes";
    if (never > 0) missing.never_arrived = std::to_string(never) + all;
    if (left_before_numbering_ > 0) missing.left = std::to_string(left_before_numbering_) + all;
    return missing;
  }
  for (int number = 0; number < host_.nnodes; ++number) {
    if (there.contains(number) || foreign_.contains(number)) continue;
    append_node(left_.contains(number) ? missing.left : missing.never_arrived, number);
  }
  return missing;
}

std::vector<Roster::Id> Roster::ids() const {
  std::vector<Id> ids;
  for (const auto& [id, node] : nodes_) ids.push_back(id);
  return ids;
}

std::vector<Roster::Id> Roster::in_order() const {
  std::vector<Id> ordered = ids();
  if (order_ != NodeOrder::kHostName) return ordered;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](Id a, Id b) { return nodes_.at(a).hello.host < nodes_.at(b).hello.host; });
  return ordered;
}

std::vector<RoleInfo> Roster::role_infos() const {
  std::map<int, RoleInfo> infos = foreign_;
  int next = 0;
  for (const Id id : in_order()) {
    const Hello& hello = nodes_.at(id).hello;
    const int number = order_ == NodeOrder::kByNodeRank ? hello.node_rank : next++;
    infos[number] = {hello.role, number, hello.local_world_size};
  }
  std::vector<RoleInfo> all;
  for (const auto& [number, info] : infos) all.push_back(info);
  return all;
}

std::vector<std::pair<Roster::Id, NodePlace>> Roster::places() const {
  const std::vector<NodeRanks> ranks = assign_ranks(role_infos());
  std::vector<std::pair<Id, NodePlace>> places;
  int next = 0;
  for (const Id id : in_order()) {
    const int number = order_ == NodeOrder::kByNodeRank ? nodes_.at(id).hello.node_rank : next++;
    places.emplace_back(id, NodePlace{number, host_.nnodes, ranks.at(static_cast<std::size_t>(number))});
  }
  return places;
}

std::vector<std::pair<int, NodeRanks>> Roster::foreign_places() const {
  const std::vector<NodeRanks> ranks = assign_ranks(role_infos());
  std::vector<std::pair<int, NodeRanks>> places;
  for (const auto& [number, info] : foreign_) places.emplace_back(number, ranks.at(static_cast<std::size_t>(number)));
  return places;
}

}  // namespace launcher
