#include "launcher/local/processes/orphans.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

#include "launcher/local/processes/user_signals.h"

namespace launcher {
namespace {

// The present time in the unit of ProcessIdentity::start_time.
std::uint64_t ticks_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const auto per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * per_second +
         static_cast<std::uint64_t>(now.tv_nsec) * per_second / 1'000'000'000;
}

Disposition disposition_of(pid_t pid, int signal_number) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::ostringstream status;
  status << file.rdbuf();
  return disposition_in(status.str(), signal_number);
}

using namespace std::chrono_literals;

// Pauses between two checks. They grow from the first to the longest one. Processes whose parent ends become children
// of this process without notice, so checks are repeated.
constexpr auto kFirstPause = 50ms;
constexpr auto kMaxSweepPause = 400ms;

}  // namespace

void Orphans::note_asked(pid_t group, int signal_number) {
  groups_[group] = {signal_number, ticks_since_boot()};
}

bool Orphans::was_asked_with_group(const ProcessIdentity& process) const {
  const auto found = groups_.find(process.group);
  if (found == groups_.end() || process.start_time > found->second.time) return false;
  const int number = found->second.signal_number;
  const Disposition disposition = disposition_of(process.pid, number);
  // For example, a shell that is not interactive starts its background jobs with SIGINT ignored.
  if (disposition == Disposition::kIgnores && number != SIGTERM) return false;
  // Start times are coarse. A process that would be ended by the signal and still runs was started after the signal.
  const bool may_be_later = process.start_time == found->second.time;
  return !may_be_later || disposition != Disposition::kTerminates || is_in_sigwait(process.pid, number);
}

void Orphans::ask() {
  for (const ProcessIdentity& process : processes_of_job(cgroup_)) {
    if (was_asked_with_group(process) || !signalled_.emplace(process.pid, process.start_time).second) continue;
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

OrphanSweep::OrphanSweep(EventLoop& loop, Messages& messages, Orphans& orphans, const Phase& phase,
                         std::function<void(PhaseEvent)> on_end)
    : loop_(loop), messages_(messages), orphans_(orphans), phase_(phase), on_end_(std::move(on_end)) {}

void OrphanSweep::begin() {
  shorten_interval();
  scan();
}

void OrphanSweep::shorten_interval() {
  pause_ = kFirstPause;
}

void OrphanSweep::scan() {
  timer_.cancel();
  if (is_done(phase_)) return;
  if (!orphans_.exist()) {
    on_end_(PhaseEvent::kAllGone);
    return;
  }
  if (!identify(::getpid())) {
    messages_.print("cannot find the processes that the ranks left running: /proc is not readable here");
    on_end_(PhaseEvent::kGiveUp);
    return;
  }
  if (is_killing(phase_)) {
    orphans_.kill();
  } else {
    orphans_.ask();
  }
  timer_.start_in(pause_, [this] { scan(); });
  pause_ = std::min<EventLoop::Clock::duration>(2 * pause_, kMaxSweepPause);
}

}  // namespace launcher
