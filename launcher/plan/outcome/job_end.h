// The records of how ranks, and the job with them, ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/outcome/error_file.h"

namespace launcher {

struct RankEnd {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  int exit_code = 0;  // when it exited on its own
  int signal = 0;     // when a signal ended it
  bool core_dumped = false;
  bool was_executed = true;     // false: the kernel refused the program, and `error` says why
  bool stop_requested = false;  // ddprun had asked it to stop before it ended
  std::chrono::system_clock::time_point time{};
  std::optional<ErrorRecord> error = std::nullopt;
  std::string last_lines{};  // of its standard error; empty when ddprun does not see it
  std::string log_file{};    // that holds its standard error; empty: none

  bool failed() const { return exit_code != 0 || signal != 0; }
};

// The first failure of a job on several nodes, as the nodes report it to each other.
struct FailureNotice {
  int node = 0;
  int exit_status = 1;
  std::string text{};
  std::chrono::system_clock::time_point time{};  // of that node's clock, or corrected to the coordinator's
  bool is_consequence = false;                   // a rank says that its peer went away
  bool is_final = false;                         // no restart: somebody stopped the job, or a node is gone
  bool may_come_again = false;                   // the user who stopped the node, or ddprun on it, may start it again
  int stop_signal = 0;                           // somebody stopped the job by this signal
  bool is_regrouping = false;                    // no failure: the ranks continue with other nodes
  std::vector<std::string> details{};            // lines of the report on it, that all nodes print
};

// Why the nodes did not meet, in words that all of them print.
struct JoinFailure {
  std::string text{};
  int exit_status = 1;
};

struct JobEnd {
  bool is_late() const { return !late_reason.empty(); }

  std::vector<RankEnd> ranks;  // in the order in which they ended
  std::chrono::system_clock::time_point start;
  int stop_signal = 0;  // the signal that told ddprun to stop, 0 when none did
  std::string host;
  std::string late_reason{};                              // when ddprun stopped it because it timed out
  bool late_restarts = false;                             // and it is to be started again nevertheless
  std::optional<FailureNotice> elsewhere = std::nullopt;  // another node's failure, when it was the job's first
  std::optional<int> announced = std::nullopt;            // the rank that all nodes name as the first to fail
  std::optional<int> agreed_status = std::nullopt;        // what all nodes of a job that was stopped end with
  std::string gpu{};                                      // of the first failing rank, where known
  std::vector<std::string> hints{};                       // on the first failure
  int attempt = 0;                                        // restarts before
};

}  // namespace launcher
