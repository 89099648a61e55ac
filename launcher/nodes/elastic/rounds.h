// The rounds of a job whose number of nodes may change: which nodes are present, when a round begins and with which
// nodes, whether a failed round is repeated, and which nodes are left out. It receives events and returns decisions.
// Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/outcome/job_end.h"

namespace launcher::elastic {

struct BudgetOptions {
  int max_restarts = 0;
  int restarts_per_hour = 0;  // 0: as many as max_restarts
};

class RestartBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RestartBudget(BudgetOptions options) : options_(options) {}

  // "" when another restart is allowed, else the reason, as the end of the sentence "the job is not restarted: ".
  std::string reason_to_end(Time now) const;
  void take(Time now);
  // The same for the restart that was counted last: the loss of the previous coordinator is counted before this check.
  std::string exceeded_budget_reason(Time now) const;
  // Restores the restarts that an earlier coordinator of the job counted.
  void restore(int used, std::vector<Time> recent);

  int used() const { return used_; }
  std::vector<Time> recent(Time now) const;

 private:
  std::string refusal(int used, int within_hour) const;

  BudgetOptions options_;
  int used_ = 0;
  std::vector<Time> taken_;
};

struct RoundsOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  BudgetOptions budget{};
  int host_failures = 0;                            // a host with so many failures is left out; 0: no host is left out
  bool join_restart = false;                        // a node that arrives during a round ends this round
  bool order_by_host = false;                       // numbers by host name instead of by arrival
  std::chrono::milliseconds join_timeout{900'000};  // until min_nodes must be present
  std::chrono::milliseconds last_call{30'000};      // the wait for more than min_nodes, before the first round
  // How long the other nodes search for a coordinator that has lost all of them.
  std::chrono::milliseconds return_timeout{15'000};
};

// What a new coordinator must know of the job so far.
struct History {
  int rounds = 0;  // the number of rounds that have begun
  int nodes = 0;   // the number of nodes that should still be present
  int restarts = 0;
  std::vector<std::chrono::steady_clock::time_point> recent_restarts{};
  std::map<std::string, int> host_failures{};
};

class Rounds {
 public:
  using Id = std::uint64_t;  // identifies a connection; increasing
  using Time = std::chrono::steady_clock::time_point;

  // Why a running round ends.
  enum class Cause : std::uint8_t {
    kFailure,    // of a rank or a node
    kDeparture,  // a node was asked to stop
    kJoin,       // to include waiting nodes
    kFinal,      // no round follows
    // The coordinator's launcher ends and another one becomes coordinator. This counts as a failure of its host.
    kCoordinatorLoss,
  };
  struct Begin {
    int round = 0;
    std::vector<Id> nodes{};  // by their numbers; the first is the coordinator's
  };
  struct Decisions {
    std::optional<Begin> begin = std::nullopt;
    std::optional<std::string> stop = std::nullopt;  // end the running round for this reason, and begin another one
    std::optional<JoinFailure> end = std::nullopt;   // end the job
    std::vector<std::pair<Id, JoinFailure>> rejected{};
    std::vector<std::pair<Id, std::string>> notices{};  // texts for the users of nodes
  };

  Rounds(RoundsOptions options, Time now, const History& history = {});

  // A node on `host` has connected; the first one is the coordinator's.
  Decisions arrived(Id id, const std::string& host, Time now);
  // The node is ready for round `round` or a later one. If the coordinator was lost just after a round began, only the
  // nodes in that round know its number; the history does not contain this round.
  Decisions ready(Id id, Time now, int round = 0);
  // The node has left, or is leaving. If it takes part in the running round, that round ends soon, so call
  // end_round(), too. `is_silent`: it has sent nothing for too long.
  Decisions left(Id id, Time now, bool is_silent = false);
  // All ranks of a node have ended successfully, so no more nodes are accepted.
  void ended_well() { is_ending_ = true; }
  // The current round ends because of an event on `host`. Returns "" when another round follows, else the reason why
  // not.
  std::string end_round(Cause cause, const std::string& host, Time now);
  Decisions left_out() const;
  // Decisions that depend on time alone; next_time() returns when to call it.
  Decisions at(Time now);
  std::optional<Time> next_time() const;

  // The number of the round that runs or will begin.
  int round() const { return round_; }
  bool is_running() const { return phase_ == Phase::kRunning; }
  History history(Time now) const;
  // A text such as "1 of 2 to 4 nodes has joined", for nodes that wait.
  std::string joined_nodes_text() const;

 private:
  enum class Phase : std::uint8_t { kJoining, kRunning, kEnded };
  struct Node {
    std::string host;
    bool is_ready = false;
    bool takes_part = false;
  };

  bool is_left_out(const std::string& host) const;
  Decisions end_with(const std::string& text);
  std::vector<Id> ready_nodes() const;
  std::vector<Id> selected_nodes() const;
  bool are_all_ready() const;
  int participants() const;
  void begin_joining(Time now);
  Decisions decide(Time now);
  Decisions begin();
  void learn_round(int round, Time now);
  Decisions wait_for_next(Id id);
  std::string cause_to_end(Cause cause, const std::string& host, Time now);

  RoundsOptions options_;
  RestartBudget budget_;
  std::string exceeded_budget_reason_;  // why the job does not continue after an earlier coordinator was lost
  Phase phase_ = Phase::kJoining;
  int round_ = 0;
  // nodes of the previous round, or of the previous coordinator, that are searching for this coordinator
  int expected_ = 0;
  std::set<Id> others_;         // nodes of the last round that were not lost, without the coordinator's
  bool is_regrouping_ = false;  // all of others_ were lost, and may return
  bool is_first_ = true;
  bool is_ending_ = false;
  Time join_deadline_;
  std::optional<Time> alone_until_;  // until when the coordinator's node waits alone for the others
  std::optional<Time> last_call_;    // its end; it begins when min_nodes are present
  std::optional<Id> coordinator_;
  std::map<Id, Node> nodes_;
  std::map<std::string, int> host_failures_;
};

}  // namespace launcher::elastic
