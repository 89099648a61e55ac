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
  // Chooses a name. make() makes the group later, so that all processes with a copy of this object know its name
  // beforehand. Returns nothing if cgroups are not delegated; then processes are found only by their parents.
  static std::optional<JobCgroup> plan();
  // Makes the group; returns false if that is impossible. descriptor() is valid only after it succeeded.
  bool make();
  // Each process with a copy of this object removes the group, unless a process is still in it.
  ~JobCgroup();
  JobCgroup(JobCgroup&&) = default;
  JobCgroup& operator=(JobCgroup&&) = delete;

  // The descriptor of the group's folder, for CLONE_INTO_CGROUP.
  int descriptor() const { return fd_.get(); }
  // The processes in the group and in its descendants, without zombies.
  std::vector<ProcessIdentity> members() const;
  // Sends SIGKILL to all members at once, including those that are being forked. Kernels before 5.14 cannot do that.
  void kill() const;

 private:
  explicit JobCgroup(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;  // empty after a move
  UniqueFd fd_;
};

// Returns all descendants of the calling process and the members of `group`, which may be null.
std::vector<ProcessIdentity> processes_of_job(const JobCgroup* group);

}  // namespace launcher
