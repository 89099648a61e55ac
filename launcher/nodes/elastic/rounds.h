// The rounds of a job whose number of nodes may change: who is there, when a round begins and with whom, whether one
// that failed is followed by another, and who is left out. Events go in, decisions come out. Pure.
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

  // "" when another restart is allowed, else the reason, to follow on "the job is not restarted: ".
  std::string reason_to_end(Time now) const;
  void take(Time now);
  // The same of the last one that was taken: an earlier coordinator's loss is counted when that is past.
  std::string overdraft(Time now) const;
  // What an earlier coordinator of the job had taken.
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
  int host_failures = 0;                            // a host that has failed so often is left out; 0: none is
  bool join_restart = false;                        // a node that comes while a round runs ends it
  bool order_by_host = false;                       // numbers by host name instead of by arrival
  std::chrono::milliseconds join_timeout{900'000};  // for min_nodes to be there
  std::chrono::milliseconds last_call{30'000};      // for more than min_nodes, before the first round
  // How long the other nodes look for a coordinator that has lost sight of all of them.
  std::chrono::milliseconds come_back{15'000};
};

// What a new coordinator must know of a job that ran before it.
struct History {
  int rounds = 0;  // that were begun
  int nodes = 0;   // that should still be there
  int restarts = 0;
  std::vector<std::chrono::steady_clock::time_point> recent_restarts{};
  std::map<std::string, int> host_failures{};
};

class Rounds {
 public:
  using Id = std::uint64_t;  // of a connection, rising
  using Time = std::chrono::steady_clock::time_point;

  // Why a running round ends.
  enum class Cause : std::uint8_t {
    kFailure,    // of a rank, or of a node
    kDeparture,  // a node was asked to stop
    kJoin,       // for those who wait to be taken in
    kFinal,      // nothing comes after it
    // The coordinator's launcher ends, and another one takes its place: a failure of its host.
    kCoordinatorLoss,
  };
  struct Begin {
    int round = 0;
    std::vector<Id> nodes{};  // by their numbers; the first is the coordinator's
  };
  struct Decisions {
    std::optional<Begin> begin = std::nullopt;
    std::optional<std::string> stop = std::nullopt;  // the round that runs, to begin again, and why
    std::optional<JoinFailure> end = std::nullopt;   // the job
    std::vector<std::pair<Id, JoinFailure>> turned_away{};
    std::vector<std::pair<Id, std::string>> told{};  // words for the user of a node
  };

  Rounds(RoundsOptions options, Time now, const History& history = {});

  // A node on `host` is there; the first one is the coordinator's.
  Decisions arrived(Id id, const std::string& host, Time now);
  // It waits for round `round` or a later one. Of a round that began just before the coordinator was lost, only the
  // nodes in it may know.
  Decisions ready(Id id, Time now, int round = 0);
  // It has left, or is leaving. If it is in the running round, that round ends soon: call is_over() too.
  // `is_silent`: it has sent nothing for too long.
  Decisions left(Id id, Time now, bool is_silent = false);
  // All ranks of a node have ended successfully: no more nodes are accepted.
  void ended_well() { is_ending_ = true; }
  // The current round ends because of what happened on `host`. Returns "" when another one follows, else why
  // none does.
  std::string is_over(Cause cause, const std::string& host, Time now);
  Decisions left_out() const;
  // What time alone decides; next_time() says when to ask.
  Decisions at(Time now);
  std::optional<Time> next_time() const;

  // Of the round that runs, or is to begin.
  int round() const { return round_; }
  bool is_running() const { return phase_ == Phase::kRunning; }
  History history(Time now) const;
  // "1 of 2 to 4 nodes has joined", for those that wait for more.
  std::string who_is_there() const;

 private:
  enum class Phase : std::uint8_t { kJoining, kRunning, kOver };
  struct Node {
    std::string host;
    bool is_ready = false;
    bool takes_part = false;
  };

  bool is_left_out(const std::string& host) const;
  Decisions end_with(const std::string& text);
  std::vector<Id> those_ready() const;
  std::vector<Id> chosen() const;
  bool are_all_ready() const;
  int participants() const;
  void begin_joining(Time now);
  Decisions decide(Time now);
  Decisions begin();
  Decisions wait_for_next(Id id);
  std::string cause_to_end(Cause cause, const std::string& host, Time now);

  RoundsOptions options_;
  RestartBudget budget_;
  std::string overdraft_;  // why the job does not continue after an earlier coordinator was lost
  Phase phase_ = Phase::kJoining;
  int round_ = 0;
  int expected_ = 0;     // nodes of the round before, or of an earlier coordinator's, which are looking for this one
  std::set<Id> others_;  // nodes of the last round, without the coordinator's, that were not lost
  bool is_regrouping_ = false;  // all of these were lost sight of, and may come back
  bool is_first_ = true;
  bool is_ending_ = false;
  Time join_deadline_;
  std::optional<Time> alone_until_;  // the coordinator's node, which has lost sight of the others
  std::optional<Time> last_call_;    // its end, from when min_nodes were there
  std::optional<Id> coordinator_;
  std::map<Id, Node> nodes_;
  std::map<std::string, int> host_failures_;
};

}  // namespace launcher::elastic
