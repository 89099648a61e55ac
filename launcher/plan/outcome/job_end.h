// Records of how the ranks and the job ended.
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
  int exit_code = 0;  // if it exited by itself
  int signal = 0;     // if a signal ended it
  bool core_dumped = false;
  bool was_executed = true;     // false: the kernel refused the program; `error` has the reason
  bool stop_requested = false;  // ddprun had asked it to stop before it ended
  std::chrono::system_clock::time_point time{};
  std::optional<ErrorRecord> error = std::nullopt;
  std::string last_lines{};  // the end of its standard error; empty when ddprun does not read it
  std::string log_file{};    // the file with its standard error; empty without a log

  bool failed() const { return exit_code != 0 || signal != 0; }
};

// The first failure of a job on several nodes, as the nodes report it to each other.
struct FailureNotice {
  int node = 0;
  int exit_status = 1;
  std::string text{};
  std::chrono::system_clock::time_point time{};  // by that node's clock, or corrected to the coordinator's
  bool is_consequence = false;                   // the rank failed because its peer was gone
  bool is_final = false;  // no restart follows, because the job was stopped by a user or a node is gone
  // The node may be started again, by the user who stopped it or by ddprun.
  bool may_rejoin = false;
  int stop_signal = 0;                 // the signal with which a user stopped the job; 0: none
  bool is_regrouping = false;          // not a failure: the ranks continue with other nodes
  std::vector<std::string> details{};  // lines of the report that all nodes print
};

// Why the nodes did not meet, as a text that all of them print.
struct JoinFailure {
  std::string text{};
  int exit_status = 1;
};

struct JobEnd {
  bool is_late() const { return !timeout_reason.empty(); }

  std::vector<RankEnd> ranks;  // in the order in which they ended
  std::chrono::system_clock::time_point start;
  int stop_signal = 0;  // the signal that told ddprun to stop, 0 when none did
  std::string host;
  std::string timeout_reason{};                           // why ddprun stopped the job when it timed out
  bool restarts_after_timeout = false;                    // the job is restarted nevertheless
  std::optional<FailureNotice> elsewhere = std::nullopt;  // another node's failure, when it was the job's first
  std::optional<int> announced = std::nullopt;            // the rank that all nodes name as the first to fail
  std::optional<int> agreed_status = std::nullopt;        // the exit status for all nodes of a job that was stopped
  std::string gpu{};                                      // of the first failing rank, where known
  std::vector<std::string> hints{};                       // on the first failure
  int attempt = 0;                                        // the number of restarts before
};

}  // namespace launcher
