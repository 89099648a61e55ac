// `ddprun status [JOB] [--json]` and `ddprun top [JOB]`: what this user's jobs on this machine are doing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace launcher {

struct FoundJob {
  std::string socket{};
  std::string document{};  // status_document()'s
};
// This user's jobs on this machine: all, or the one with this name or process number.
std::vector<FoundJob> find_jobs(const std::string& job);
// What the ddprun at `socket` answers to a line; nothing when it ends meanwhile.
std::optional<std::string> ask(const std::string& socket, const std::string& question);
// Says that there is no such job; returns the exit status.
int refuse_job(const std::string& job);

// These words, as the first one, are for ddprun itself; a program of that name is started as ./status.
bool is_status_command(std::span<const std::string> arguments);

// Returns the exit status: 0, or 1 when there is no such job. Throws LaunchError when the words cannot be understood,
// or the answer not be written.
int run_status_command(std::span<const std::string> arguments);

}  // namespace launcher
