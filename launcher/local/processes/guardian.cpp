#include "launcher/local/processes/guardian.h"

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

#include "launcher/local/processes/descendants.h"
#include "launcher/local/processes/terminal_input.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long killed processes may take to end before ddprun stops waiting for them.
constexpr auto kGuardianKillTimeout = 10s;
constexpr auto kSweepInterval = 20ms;
// How long the supervisor may take to end everything once the guardian is gone: longer than the supervisor's own
// timeout.
constexpr auto kSupervisorTimeout = 15s;
// The title contains neither "ddprun" nor the user's program: `pkill -f train.py` should not match it.
constexpr const char* kSweeperTitle = "rank-sweeper of process ";

struct MonitoredChild {
  SignalSource& signals;
  const char* what;                             // the name of the child's process in messages
  pid_t child;                                  // gets the signals that this process receives
  UniqueFd verdict;                             // contains a byte when the child's processes need no sweep
  const JobCgroup* cgroup;                      // null: there is no cgroup
  std::vector<ProcessIdentity> inherited = {};  // children from before the exec of ddprun, which ddprun must not end
};

// Monitors a child. When the child has ended, ends the processes below this one that the child did not end.
class ChildMonitor {
 public:
  explicit ChildMonitor(MonitoredChild child) : child_(std::move(child)) {
    loop_.add(child_.signals.fd(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
  }
  ~ChildMonitor() { loop_.remove(child_.signals.fd()); }
  ChildMonitor(const ChildMonitor&) = delete;
  ChildMonitor& operator=(const ChildMonitor&) = delete;

  // Called in the guardian. It passes terminal input on, and stops when it is suspended, so that the shell continues.
  // The supervisor ends everything when the pipe is closed.
  void guard(UniqueFd guardian_pipe, UniqueFd terminal) {
    guardian_pipe_ = std::move(guardian_pipe);
    if (terminal) terminal_.emplace(loop_, std::move(terminal));
  }

  // Called in the sweeper. When the guardian is gone, the child ends everything; if that takes too long, it is killed.
  void watch_guardian(int guardian_pipe) {
    loop_.add(guardian_pipe, EPOLLIN, [this, guardian_pipe](std::uint32_t) {
      loop_.remove(guardian_pipe);
      signal_child(SIGCONT);  // it may have been stopped
      loop_.call_at(EventLoop::Clock::now() + kSupervisorTimeout, [this] { signal_child(SIGKILL); });
    });
  }

  SupervisedEnd run() {
    while (!end_) loop_.run_once();
    const bool was_killed = end_->si_code != CLD_EXITED;
    char byte = 0;
    if (!was_killed && ::read(child_.verdict.get(), &byte, 1) == 1) {
      return {.exit_status = end_->si_status, .needs_no_sweep = true};
    }
    if (guardian_pipe_) let_supervisor_end_everything();
    end_everything();
    if (!was_killed) return {.exit_status = end_->si_status, .needs_no_sweep = true};
    print_line(std::string("its ") + child_.what + " process was killed by " + signal_name(end_->si_status) +
               "; all ranks have been ended");
    return {.exit_status = to_int(ExitStatus::kLauncherError), .needs_no_sweep = true};
  }

 private:
  void on_signals() {
    while (const auto info = child_.signals.next()) {
      const int number = static_cast<int>(info->ssi_signo);
      if (number == SIGCHLD) {
        reap();
        continue;
      }
      // At SIGTSTP the shell waits until the guardian is stopped. The supervisor is not stopped itself; it stops the
      // guardian once the terminal is in order.
      signal_child(number);
      if (number == SIGCONT && terminal_) terminal_->resume();
    }
  }

  // After the child is reaped, its number may belong to another process.
  void signal_child(int number) const {
    if (!end_) ::kill(child_.child, number);
  }

  // Reaps all children that have ended: the monitored child and, as process 1 of a container, orphans that the kernel
  // gave to this process.
  void reap() {
    siginfo_t info{};
    while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
      if (info.si_pid == child_.child) end_ = info;
      info.si_pid = 0;
    }
  }

  bool is_inherited(const ProcessIdentity& process) const {
    return std::any_of(child_.inherited.begin(), child_.inherited.end(), [&](const ProcessIdentity& other) {
      return other.pid == process.pid && other.start_time == process.start_time;
    });
  }

  // Kills the descendants of this process, and returns how many there were.
  std::size_t kill_everything() const {
    if (child_.cgroup != nullptr) child_.cgroup->kill();
    std::size_t found = 0;
    for (const ProcessIdentity& process : processes_of_job(child_.cgroup)) {
      if (is_inherited(process)) continue;
      ++found;
      signal_process(process, SIGKILL);
    }
    return found;
  }

  // Called in the guardian when the sweeper is gone. It does not kill the supervisor, because the process that killed
  // the sweeper may be about to kill the guardian, too. It closes the pipe instead.
  void let_supervisor_end_everything() {
    guardian_pipe_.reset();
    bool is_gone = false;  // the supervisor has closed the other end of the verdict's pipe
    loop_.add(child_.verdict.get(), EPOLLIN, [&is_gone](std::uint32_t) { is_gone = true; });
    const auto timer = loop_.call_at(EventLoop::Clock::now() + kSupervisorTimeout, [&is_gone] { is_gone = true; });
    while (!is_gone) loop_.run_once();
    loop_.cancel(timer);
    loop_.remove(child_.verdict.get());
  }

  // Ends the child's children, which became children of this process.
  void end_everything() {
    const auto give_up = EventLoop::Clock::now() + kGuardianKillTimeout;
    int checks_without_process = 0;
    while (EventLoop::Clock::now() < give_up) {
      reap();
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && child_.cgroup == nullptr) return;
      // A scan can miss a process whose parent ends during it.
      checks_without_process = kill_everything() == 0 ? checks_without_process + 1 : 0;
      if (checks_without_process == 2) return;
      bool due = false;
      loop_.call_at(EventLoop::Clock::now() + kSweepInterval, [&due] { due = true; });
      while (!due) loop_.run_once();
    }
  }

  EventLoop loop_;
  MonitoredChild child_;
  UniqueFd guardian_pipe_;  // the guardian's end of the pipe
  std::optional<TerminalInput> terminal_;
  std::optional<siginfo_t> end_;
};

pid_t fork_or_throw() {
  const pid_t child = ::fork();
  if (child < 0) throw LaunchError("cannot start a process: " + fork_error_text(errno));
  return child;
}

// Makes the kernel send SIGCONT to this process when its parent ends: a stopped process could not end the parent's
// remaining processes. A running process ignores the signal.
void continue_when_parent_ends() {
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
}

void send_end(UniqueFd& verdict, bool needs_no_sweep) {
  if (needs_no_sweep && ::write(verdict.get(), "", 1) < 0)
    return;  // then the process that reads it sweeps, and finds nothing
}

// Called in the sweeper's process. Starts the supervisor and monitors it.
SupervisedEnd sweep_after(SupervisorContext context, ProcessTitle& title, JobCgroup* cgroup,
                          const std::function<SupervisedEnd(SupervisorContext)>& supervise) {
  // If the supervisor is killed, its children become children of the sweeper.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  continue_when_parent_ends();
  context.cgroup = cgroup != nullptr && cgroup->make() ? cgroup : nullptr;
  Pipe verdict = make_pipe(O_NONBLOCK);
  const pid_t supervisor = fork_or_throw();
  if (supervisor == 0) {
    ::setpgid(0, 0);
    continue_when_parent_ends();
    title.restore();
    verdict.reader.reset();
    const SupervisedEnd end = supervise(std::move(context));
    send_end(verdict.writer, end.needs_no_sweep);
    return end;
  }
  verdict.writer.reset();
  context.terminal_input.reset();  // as long as the sweeper has a copy, the guardian does not see that rank 0 has ended
  ChildMonitor monitor({.signals = context.signals,
                        .what = "supervising",
                        .child = supervisor,
                        .verdict = std::move(verdict.reader),
                        .cgroup = context.cgroup});
  monitor.watch_guardian(context.guardian_pipe.get());
  return monitor.run();
}

// Calls sweep_after(), and prints an error, since no caller would print it.
SupervisedEnd sweep_after_or_report(SupervisorContext context, ProcessTitle& title, JobCgroup* cgroup,
                                    const std::function<SupervisedEnd(SupervisorContext)>& supervise) {
  try {
    return sweep_after(std::move(context), title, cgroup, supervise);
  } catch (const std::exception& error) {
    print_line(error.what());
    return {};
  }
}

}  // namespace

int run_with_guardian(SignalSource& signals, ProcessTitle& title,
                      const std::function<SupervisedEnd(SupervisorContext)>& supervise) {
  std::vector<ProcessIdentity> inherited;
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) inherited = descendants_of(::getpid());
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  Pipe guardian_pipe = make_pipe();
  Pipe verdict = make_pipe(O_NONBLOCK);
  Pipe terminal;
  if (::isatty(STDIN_FILENO) == 1) terminal = make_pipe();

  std::optional<JobCgroup> cgroup = JobCgroup::plan();
  JobCgroup* cgroup_or_null = cgroup ? &*cgroup : nullptr;
  const pid_t guardian = ::getpid();
  const pid_t guardian_group = ::getpgrp();
  const pid_t sweeper = fork_or_throw();
  if (sweeper == 0) {
    title.set(kSweeperTitle + std::to_string(guardian));
    // Leaves the terminal's foreground process group. Only the guardian receives the terminal's signals, so each of
    // them counts once.
    ::setpgid(0, 0);
    guardian_pipe.writer.reset();
    terminal.writer.reset();
    verdict.reader.reset();
    if (::getppid() != guardian) return to_int(ExitStatus::kLauncherError);
    // Makes a second copy of the writing end, which stays open until the process exits. So the guardian sees the end of
    // the pipe only when sweeper and supervisor have exited. When they return from this function they still have to
    // remove the temporary folder.
    ::fcntl(verdict.writer.get(), F_DUPFD_CLOEXEC, 0);
    const pid_t self = ::getpid();
    const SupervisedEnd end = sweep_after_or_report({.signals = signals,
                                                     .guardian_pipe = std::move(guardian_pipe.reader),
                                                     .terminal_input = std::move(terminal.reader),
                                                     .cgroup = nullptr,
                                                     .guardian = guardian,
                                                     .guardian_group = guardian_group},
                                                    title, cgroup_or_null, supervise);
    if (::getpid() == self)
      send_end(verdict.writer,
               end.needs_no_sweep);  // else this is the supervisor, which has reported to the sweeper already
    return end.exit_status;
  }
  guardian_pipe.reader.reset();
  terminal.reader.reset();
  verdict.writer.reset();
  ChildMonitor monitor({.signals = signals,
                        .what = "sweeping",
                        .child = sweeper,
                        .verdict = std::move(verdict.reader),
                        .cgroup = cgroup_or_null,
                        .inherited = std::move(inherited)});
  monitor.guard(std::move(guardian_pipe.writer), std::move(terminal.writer));
  return monitor.run().exit_status;
}

}  // namespace launcher
