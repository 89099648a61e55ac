// What this ddprun is and what this machine offers it (--check).
#pragma once

#include <string>
#include <vector>

namespace launcher {

struct Finding {
  enum class Kind { kGood, kNote, kProblem };
  Kind kind = Kind::kGood;
  std::string what;    // "process descriptors"
  std::string answer;  // "pidfd_open works", or what follows from its absence
};

// Looks at this machine: kernel features, limits, GPUs, Python and its torch, the store's port. Starts no rank. Takes
// up to some seconds, which Python needs.
std::vector<Finding> check_machine();

// One line per finding, which begins with "ok", "note" or "PROBLEM". Pure.
std::string finding_lines(const std::vector<Finding>& findings);
std::string to_text(const std::vector<Finding>& findings);

// No finding is a problem: a job could run. Pure.
bool can_run_jobs(const std::vector<Finding>& findings);

}  // namespace launcher
