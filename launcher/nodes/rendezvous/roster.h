// Which nodes of a job have arrived, whether all were started with the same options, and which ranks each node has.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/nodes/control/control_messages.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher {

enum class NodeOrder : std::uint8_t { kByNodeRank, kArrival, kHostName };

class Roster {
 public:
  using Id = std::uint64_t;  // identifies a connection; increasing

  // `host`: the coordinator's node, with which all others are compared.
  Roster(control::Hello host, NodeOrder order);

  // Returns how the node's options differ from the host's, or why the node cannot start; nothing if it may join.
  std::optional<JoinFailure> reason_to_refuse(const control::Hello& hello) const;
  // Adds a node, or returns the reason to refuse it.
  std::optional<JoinFailure> admit(Id id, const control::Hello& hello);
  // Adds a torchrun node, or returns the reason to refuse it.
  std::optional<JoinFailure> admit_foreign(const RoleInfo& info);
  void set_ready(Id id, int round);
  void remove(Id id);

  bool is_ready(Id id, int round) const;

  std::vector<Id> ids() const;
  bool has(Id id) const { return nodes_.contains(id); }
  bool has_foreign() const { return !foreign_.empty(); }
  // True when round `round` waits for no more nodes.
  bool is_complete(int round) const;
  // The lowest number that neither a node nor a torchrun node has.
  std::optional<int> lowest_missing() const;
  // Texts such as "node 1, 3" or "2 of 4 nodes": the nodes that never arrived, and those that arrived and left.
  struct MissingNodes {
    std::string never_arrived;
    std::string left;
  };
  MissingNodes missing_nodes(int round) const;
  // When the roster is complete: each node's place, and the ranks for torchrun's nodes.
  std::vector<std::pair<Id, NodePlace>> places() const;
  std::vector<std::pair<int, NodeRanks>> foreign_places() const;
  // "node 1 (host b)", for messages.
  std::string name(Id id) const;

 private:
  struct Node {
    control::Hello hello;
    int ready_round = -1;
  };
  std::string name(const control::Hello& hello) const;
  std::string difference(const control::Hello& hello) const;
  std::vector<Id> in_order() const;
  std::vector<RoleInfo> role_infos() const;

  control::Hello host_;
  NodeOrder order_;
  // A job may have ten thousand nodes, so no function that is called for each arrival may iterate over all of them.
  std::map<Id, Node> nodes_;
  std::map<int, Id> by_number_;  // nodes that were given a number
  std::set<int> missing_;        // numbers that neither a node nor a torchrun node has
  std::map<int, int> ready_;     // how many nodes wait for which round
  std::map<int, RoleInfo> foreign_;
  std::set<int> left_;  // numbers of nodes that arrived and left
  int left_before_numbering_ = 0;
};

}  // namespace launcher
