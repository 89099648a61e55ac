#include "launcher/processes/guardian.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "launcher/processes/descendants.h"
#include "launcher/processes/terminal_input.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/exit_status.h"
#include "launcher/system/launch_error.h"
#include "launcher/system/line.h"
#include "launcher/system/pipe.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long killed processes may take to vanish before the guardian ends without them.
constexpr auto kKillPatience = 10s;
constexpr auto kSweepInterval = 20ms;

class Guardian {
 public:
  Guardian(SignalSource& signals, pid_t supervisor, UniqueFd terminal_writer, std::vector<ProcessIdentity> strangers,
           const JobCgroup* cgroup)
      : signals_(signals), supervisor_(supervisor), strangers_(std::move(strangers)), cgroup_(cgroup) {
    loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
    if (terminal_writer) terminal_.emplace(loop_, std::move(terminal_writer));
  }
  ~Guardian() { loop_.remove(signals_.fd()); }
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  int run() {
    while (!end_) loop_.run_once();
    if (end_->si_code == CLD_EXITED) return end_->si_status;
    print_line("its supervising process was killed by " + signal_name(end_->si_status) + "; ending all ranks");
    end_everything();
    return to_int(ExitStatus::kLauncherError);
  }

 private:
  void on_signals() {
    while (const auto info = signals_.next()) {
      const int number = static_cast<int>(info->ssi_signo);
      if (number == SIGCHLD) {
        reap();
        continue;
      }
      // At SIGTSTP the shell waits for us to stop: the supervisor, which goes on, does it once the terminal is tidy.
      ::kill(supervisor_, number);
      if (number == SIGCONT && terminal_) terminal_->resume();
    }
  }

  // Everything that ended: the supervisor, and as process 1 of a container whatever the system gave us.
  void reap() {
    siginfo_t info{};
    while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
      if (info.si_pid == supervisor_) end_ = info;
      info.si_pid = 0;
    }
  }

  bool is_stranger(const ProcessIdentity& process) const {
    return std::any_of(strangers_.begin(), strangers_.end(), [&](const ProcessIdentity& stranger) {
      return stranger.pid == process.pid && stranger.start_time == process.start_time;
    });
  }

  // The supervisor's children became ours.
  void end_everything() {
    const auto give_up = EventLoop::Clock::now() + kKillPatience;
    while (EventLoop::Clock::now() < give_up) {
      reap();
      if (cgroup_ != nullptr) cgroup_->kill();
      std::size_t left = 0;
      for (const ProcessIdentity& process : processes_of_job(cgroup_)) {
        if (is_stranger(process)) continue;
        ++left;
        signal_process(process, SIGKILL);
      }
      if (left == 0) return;
      bool due = false;
      loop_.call_at(EventLoop::Clock::now() + kSweepInterval, [&due] { due = true; });
      while (!due) loop_.run_once();
    }
  }

  EventLoop loop_;
  SignalSource& signals_;
  pid_t supervisor_;
  std::vector<ProcessIdentity> strangers_;  // children from before the exec of ddprun: not ours to end
  const JobCgroup* cgroup_;
  std::optional<TerminalInput> terminal_;
  std::optional<siginfo_t> end_;
};

}  // namespace

int run_guarded(SignalSource& signals, const std::function<int(Guarded)>& supervise) {
  std::vector<ProcessIdentity> strangers;
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) strangers = descendants_of(::getpid());
  // What the supervisor leaves behind when it is killed comes to us.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  Pipe lifeline = make_pipe();
  Pipe terminal;
  if (::isatty(STDIN_FILENO) == 1) terminal = make_pipe();

  const std::optional<JobCgroup> cgroup = JobCgroup::create();
  const JobCgroup* cgroup_or_null = cgroup ? &*cgroup : nullptr;
  const pid_t guardian = ::getpid();
  const pid_t guardian_group = ::getpgrp();
  const pid_t supervisor = ::fork();
  if (supervisor < 0) throw LaunchError(std::string("cannot start a process: ") + std::strerror(errno));
  if (supervisor == 0) {
    // Out of the terminal's foreground group: signals from there reach the guardian alone, so each counts once.
    ::setpgid(0, 0);
    lifeline.writer.reset();
    terminal.writer.reset();
    if (::getppid() != guardian) return to_int(ExitStatus::kLauncherError);
    return supervise({.signals = signals,
                      .lifeline = std::move(lifeline.reader),
                      .terminal_input = std::move(terminal.reader),
                      .cgroup = cgroup_or_null,
                      .guardian = guardian,
                      .guardian_group = guardian_group});
  }
  lifeline.reader.reset();
  terminal.reader.reset();
  return Guardian(signals, supervisor, std::move(terminal.writer), std::move(strangers), cgroup_or_null).run();
}

}  // namespace launcher
