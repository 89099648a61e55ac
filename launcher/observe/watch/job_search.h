// Finds this user's jobs on this machine and sends them requests; for root also the jobs of all users.
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
  pid_t pid = 0;           // the process number of its ddprun
  std::string user{};      // whose it is; "" where only one's own are looked for
  std::string document{};  // status_document()'s; "" when it does not answer,
  std::string problem{};   // if it does not answer: why, as far as that is known, and what to do
};

// Returns all jobs, or those with this name or process number. The name of a job that does not answer is not known.
// Such jobs are returned if `job` is empty, or if no other job has the name. Throws LaunchError when the folder with
// the sockets cannot be used. kAll is for root, whom every ddprun answers.
std::vector<FoundJob> find_jobs(const std::string& job, JobScope scope = JobScope::kOwn);
// Whether an argument of a subcommand is --all_users.
bool names_all_users(const std::string& word);
// The scope of --all_users: all users for root; for others their own jobs, with a message.
JobScope scope_of_all_users();
// Sends one line to the ddprun at `socket` and returns its answer; nothing when it ends before it answers.
std::optional<std::string> ask(const std::string& socket, const std::string& request);
// Returns the folder in which this process can read the /proc entries of the processes of the ddprun at `socket`, which
// may run in another PID namespace, as in a container: "/proc", or the /proc in the root folder of that ddprun. ""
// if there is no such folder.
std::string proc_folder_of(const std::string& socket);
// Prints that there is no such job, and returns the exit status.
int refuse_job(const std::string& job, JobScope scope = JobScope::kOwn);

}  // namespace launcher
