// Whether this process or thread is one rank of several if the program did not give a rank: read from the launcher's
// variables, or from the rank that runs as this thread. Does not use LibTorch.
#pragma once

#include <optional>
#include <string>

#include "base/schedulers/launcher_variables.h"

namespace ddp {

struct JobPlace {
  int rank = 0;
  int size = 1;
};

/// The rank and size in the launcher's variables. Rank 0 of 1 if no launcher has set them, and also if they are not
/// numbers or contradict each other; init_process_group() reports that.
JobPlace job_of_environment(const VariableLookup& lookup = environment_variable);

/// The place that the calling thread's innermost ThreadJob says; nothing without one.
std::optional<JobPlace> thread_job();

/// The calling thread's place: what ThreadJob says, else what the environment says.
JobPlace job_of_this_thread();

/// "rank 1 of 2: " in a job of several ranks, else empty: the beginning of errors by code that has no process group.
std::string job_prefix(const JobPlace& job);

/// While it lives, the thread that made it is that rank: what a launcher's variables are to a process, this is to the
/// ranks of ddp::spawn(). Objects nest; the thread that made one destroys it.
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
