// Determines whether this process or thread is one rank of several if the program did not specify a rank. Uses the
// variables of the launcher, or the ThreadJob of this thread. Does not use LibTorch.
#pragma once

#include <optional>
#include <string>

#include "base/schedulers/launcher_variables.h"

namespace ddp {

struct JobPlace {
  int rank = 0;
  int size = 1;
};

/// The rank and size from the variables of the launcher. Returns rank 0 of 1 if no launcher has set them, or if they
/// are not valid numbers or contradict each other (init_process_group() reports that error).
JobPlace job_of_environment(const VariableLookup& lookup = environment_variable);

/// The place set by the innermost ThreadJob of the calling thread; nullopt if the thread has no ThreadJob.
std::optional<JobPlace> thread_job();

/// The place of the calling thread: from its ThreadJob if there is one, otherwise from the environment.
JobPlace job_of_this_thread();

/// The prefix of error messages in code without a process group: "rank 1 of 2: " in a job of several ranks, otherwise
/// empty.
std::string job_prefix(const JobPlace& job);

/// During the lifetime of this object, the thread that created it acts as the given rank. It gives the ranks of
/// ddp::spawn() the information that a launcher gives a process in environment variables. Objects may be nested; each
/// must be destroyed by the thread that created it.
class ThreadJob {
 public:
  explicit ThreadJob(const JobPlace& place);
  ~ThreadJob();
  ThreadJob(const ThreadJob&) = delete;
  ThreadJob& operator=(const ThreadJob&) = delete;

 private:
  JobPlace place_;
  const JobPlace* outer_;
};

}  // namespace ddp
