#include "launcher/processes/orphans.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace launcher {
namespace {

// Now, in the unit of ProcessIdentity::start_time.
std::uint64_t ticks_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const auto per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * per_second +
         static_cast<std::uint64_t>(now.tv_nsec) * per_second / 1'000'000'000;
}

// A shell that is no terminal's starts its background jobs with interrupts ignored, say.
bool ignores(pid_t pid, int signal_number) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigIgn:")) continue;
    const std::uint64_t ignored = std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 16);
    return (ignored >> (signal_number - 1) & 1) != 0;
  }
  return false;
}

}  // namespace

void Orphans::note_asked(pid_t group, int signal_number) {
  groups_[group] = {signal_number, ticks_since_boot()};
}

// 0: it has not been.
int Orphans::signal_asked_with(const ProcessIdentity& process) const {
  const auto own = processes_.find({process.pid, process.start_time});
  if (own != processes_.end()) return own->second;
  const auto group = groups_.find(process.group);
  return group != groups_.end() && process.start_time <= group->second.time ? group->second.signal_number : 0;
}

void Orphans::ask() {
  for (const ProcessIdentity& process : processes_of_job(cgroup_)) {
    const int asked_with = signal_asked_with(process);
    if (asked_with == SIGTERM || (asked_with != 0 && !ignores(process.pid, asked_with))) continue;
    processes_[{process.pid, process.start_time}] = SIGTERM;
    signal_process(process, SIGTERM);
    signal_process(process, SIGCONT);  // a suspended process would not notice
  }
}

void Orphans::kill() const {
  if (cgroup_ != nullptr) cgroup_->kill();
  for (const ProcessIdentity& process : processes_of_job(cgroup_)) signal_process(process, SIGKILL);
}

bool Orphans::exist() const {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) return true;
  return cgroup_ != nullptr && !cgroup_->members().empty();
}

}  // namespace launcher
