// A cgroup (v2) for this job, if ddprun's cgroup is delegated to its user. It holds the ranks and all processes that
// they start. So even a process that is no longer a descendant of ddprun is found, and all can be killed at once.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

class JobCgroup {
 public:
  // Chooses a name; the group is made by make(), so that all processes that have the object know it beforehand. Nothing
  // where cgroups are not delegated; then parentage alone has to do.
  static std::optional<JobCgroup> plan();
  // False when the group cannot be made. Only where it was made, there is a descriptor().
  bool make();
  // In each process that has the object: removes the group unless a process is still in it.
  ~JobCgroup();
  JobCgroup(JobCgroup&&) = default;
  JobCgroup& operator=(JobCgroup&&) = delete;

  // Of the group's folder, for CLONE_INTO_CGROUP.
  int descriptor() const { return fd_.get(); }
  // The living processes in the group and in groups that they made below it.
  std::vector<ProcessIdentity> members() const;
  // SIGKILL to all members at once, those being forked at this moment too. Kernels before 5.14 cannot.
  void kill() const;

 private:
  explicit JobCgroup(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;  // empty: moved from
  UniqueFd fd_;
};

// All that the calling process started, directly or not, and the members of `group` where there is one (else null).
std::vector<ProcessIdentity> processes_of_job(const JobCgroup* group);

}  // namespace launcher
