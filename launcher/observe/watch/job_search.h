// This user's jobs on this machine, as other processes of the user find and ask them; for root also those of all users.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

enum class JobScope : std::uint8_t { kOwn, kAll };

struct FoundJob {
  std::string socket{};
  pid_t pid = 0;           // of its ddprun
  std::string user{};      // whose it is; "" where only one's own are looked for
  std::string document{};  // status_document()'s; "" when it does not answer,
  std::string problem{};   // and then why, as far as that is known, and what to do
};

// All of them, or the one with this name or process number. Of those that do not answer the name is not known: they
// are among all, and where no other one has the name. Throws LaunchError when the folder with their sockets cannot be
// used. kAll is for root, whom every ddprun answers.
std::vector<FoundJob> find_jobs(const std::string& job, JobScope whose = JobScope::kOwn);
// --all_users among a subcommand's words.
bool names_all_users(const std::string& word);
// What that is for this user: all for root, with a line for others.
JobScope scope_of_all_users();
// What the ddprun at `socket` answers to a line; nothing when it ends meanwhile.
std::optional<std::string> ask(const std::string& socket, const std::string& question);
// Says that there is no such job; returns the exit status.
int refuse_job(const std::string& job, JobScope whose = JobScope::kOwn);

}  // namespace launcher
