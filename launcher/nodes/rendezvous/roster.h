// Which nodes of a job have arrived, whether all were started with the same options, and who has which ranks. Pure.
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

enum class NodeOrder : std::uint8_t { kGiven, kArrival, kHostName };

class Roster {
 public:
  using Id = std::uint64_t;  // of a connection, rising

  // `host`: the node with the coordinator, which all others are compared with.
  Roster(control::Hello host, NodeOrder order);

  // What its user and the host's do not agree on, or why it cannot start.
  std::optional<JoinFailure> reason_to_refuse(const control::Hello& hello) const;
  // Takes a node in, or says what its user and the host's do not agree on.
  std::optional<JoinFailure> admit(Id id, const control::Hello& hello);
  // A torchrun node. Nothing, or why it cannot be one of this job.
  std::optional<JoinFailure> admit_foreign(const RoleInfo& info);
  void set_ready(Id id, int round);
  void remove(Id id);

  bool is_ready(Id id, int round) const;

  std::vector<Id> ids() const;
  bool has(Id id) const { return nodes_.contains(id); }
  bool has_foreign() const { return !foreign_.empty(); }
  // Nothing to wait for in round `round`.
  bool is_complete(int round) const;
  // The lowest number that neither a node nor a torchrun node has.
  std::optional<int> lowest_missing() const;
  // "node 1, 3", "2 of 4 nodes": who was never there, and who was.
  struct MissingNodes {
    std::string never_arrived;
    std::string left;
  };
  MissingNodes missing_nodes(int round) const;
  // Once complete: each node's place, then what torchrun's nodes are to be told.
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
  // With ten thousand nodes nothing may look at all of them whenever one comes.
  std::map<Id, Node> nodes_;
  std::map<int, Id> by_number_;  // where they have one
  std::set<int> missing_;        // numbers that neither a node nor a torchrun node has
  std::map<int, int> ready_;     // how many nodes wait for which round
  std::map<int, RoleInfo> foreign_;
  std::set<int> left_;  // numbers of nodes that were there
  int left_without_number_ = 0;
};

}  // namespace launcher
