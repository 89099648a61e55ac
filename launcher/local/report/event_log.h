// What happens to a job, as JSON lines in a file, for programs that watch it (--events).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <sys/types.h>

#include <chrono>
#include <string>

#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

struct Hang;
struct StragglerChange;

class EventLog {
 public:
  // Appends to `file`. With an empty name nothing is written. Throws LaunchError when the file cannot be opened.
  explicit EventLog(const std::string& file);

  // Each call writes one line, whole and at once.
  void rank_started(const RankPlace& place, pid_t pid, int attempt);
  void rank_ended(const RankEnd& rank, int attempt);
  // Writes the first failure of an attempt; writes nothing when there was none.
  void attempt_failed(const JobEnd& end, int attempt);
  void restarting(int attempt);
  // The first means that no rank makes progress, the second that the ranks make progress again.
  void hang(int attempt, const Hang& hang);
  void hang_ended(int attempt, const Hang& hang, std::chrono::system_clock::time_point now);
  // A rank begins to delay the others, or no longer delays them.
  void straggler(int attempt, const StragglerChange& change);
  void job_ended(int exit_status);

  // Why an event could not be written; empty while all were.
  const std::string& problem() const { return problem_; }

 private:
  void write(const char* event, const nlohmann::ordered_json& fields);

  std::string file_;
  UniqueFd fd_;
  std::string host_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string problem_;
};

}  // namespace launcher
