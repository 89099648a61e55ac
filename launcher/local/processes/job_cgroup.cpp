#include "launcher/local/processes/job_cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "launcher/os/machine/own_cgroup.h"

namespace launcher {
namespace {

namespace fs = std::filesystem;

// Returns the cgroup and its descendants, parents first.
std::vector<fs::path> groups_in(const std::string& folder) {
  std::vector<fs::path> groups = {folder};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::error_code gone;
    for (fs::directory_iterator entry(groups[i], gone), end; !gone && entry != end; entry.increment(gone)) {
      if (std::error_code failed; entry->is_directory(failed)) groups.push_back(entry->path());
    }
  }
  return groups;
}

}  // namespace

std::optional<JobCgroup> JobCgroup::plan() {
  const auto own = own_cgroup_folder();
  if (!own || !is_delegated(*own)) return std::nullopt;
  // The kernel starts a process in another cgroup only if the caller may write to the common parent of both cgroups.
  if (::access((*own + "/cgroup.procs").c_str(), W_OK) != 0) return std::nullopt;
  return JobCgroup(*own + "/ddprun-" + std::to_string(::getpid()));
}

bool JobCgroup::make() {
  if (::mkdir(folder_.c_str(), 0755) != 0) return false;
  fd_.reset(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_) ::rmdir(folder_.c_str());
  return static_cast<bool>(fd_);
}

JobCgroup::~JobCgroup() {
  if (folder_.empty()) return;
  const std::vector<fs::path> groups = groups_in(folder_);
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) ::rmdir(group->c_str());
}

std::vector<ProcessIdentity> JobCgroup::members() const {
  std::vector<ProcessIdentity> found;
  for (const fs::path& group : groups_in(folder_)) {
    std::ifstream file(group / "cgroup.procs");
    for (pid_t pid = 0; file >> pid;) {
      const auto process = identify(pid);
      if (process && process->state != 'Z' && process->state != 'X') found.push_back(*process);
    }
  }
  return found;
}

void JobCgroup::kill() const {
  std::ofstream(folder_ + "/cgroup.kill") << "1";
}

std::vector<ProcessIdentity> processes_of_job(const JobCgroup* group) {
  std::vector<ProcessIdentity> found = descendants_of(::getpid());
  if (group == nullptr) return found;
  for (const ProcessIdentity& member : group->members()) {
    const auto is_same = [&](const ProcessIdentity& other) { return other.pid == member.pid; };
    if (std::none_of(found.begin(), found.end(), is_same)) found.push_back(member);
  }
  return found;
}

}  // namespace launcher
