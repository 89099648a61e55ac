// What became of a job: who failed first, which status ddprun ends with, and the report for the user. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/error_file.h"

namespace launcher {

// How one rank ended.
struct RankEnd {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  int exit_code = 0;  // when it exited by itself
  int signal = 0;     // when a signal ended it
  bool core_dumped = false;
  bool was_executed = true;   // false: the kernel refused the program, and `error` says why
  bool told_to_stop = false;  // ddprun had asked it to stop before it ended
  std::chrono::system_clock::time_point time{};
  std::optional<ErrorRecord> error = std::nullopt;
  std::string last_lines{};  // of its standard error; empty when ddprun does not see it
  std::string log_file{};    // that holds its standard error; empty: none

  bool failed() const { return exit_code != 0 || signal != 0; }
};

// A failure on another node that made this one stop.
struct FailureElsewhere {
  int node = 0;
  int exit_status = 1;
  std::string text;
};

struct JobEnd {
  bool is_late() const { return !late_reason.empty(); }

  std::vector<RankEnd> ranks;  // in the order in which they ended
  std::chrono::system_clock::time_point start;
  int stop_signal = 0;  // the signal that told ddprun to stop, 0 when none did
  std::string host;
  std::string late_reason{};                                 // when ddprun stopped it because its time was over
  std::optional<FailureElsewhere> elsewhere = std::nullopt;  // when it was the job's first
  std::string gpu{};                                         // of the first failing rank, where known
  std::vector<std::string> hints{};                          // on the first failure
  int attempt = 0;                                           // restarts before
};

// The rank's error message, or without one its last lines, says that another rank went away: it did not fail by itself.
bool is_consequence(const RankEnd& rank);
// A consequence whose words fit a failure of its own as well: "Connection refused" comes from a peer that is gone, and
// from any other server that is not there.
bool is_vague_consequence(const RankEnd& rank);

// Index in `ranks` of the failure that caused the others; nothing when no rank failed by itself. A rank that wrote an
// error file before another one ended was first, however long it took to end.
std::optional<std::size_t> first_failure(const JobEnd& job);

// ddprun's exit status.
int exit_status(const JobEnd& job);
// The same with --exit_code torchrun: 1 for whatever comes from the ranks or from a signal.
int torchrun_exit_status(const JobEnd& job);

// About ten lines; empty when there is nothing to say.
std::string failure_report(const JobEnd& job);

// The status to pass on for one rank's end: its exit code, or 128 + signal.
int status_of(const RankEnd& rank);

// "rank 3", "ranks 0, 1, 3", the rest of many as a number.
std::string rank_list(std::vector<int> ranks);

// "exited with status 7", "was killed by SIGSEGV (core dumped)".
std::string describe_end(const RankEnd& rank);

}  // namespace launcher
