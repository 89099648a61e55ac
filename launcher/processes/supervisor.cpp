#include "launcher/processes/supervisor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/outcome/describe.h"
#include "launcher/outcome/first_failure.h"
#include "launcher/outcome/job_status.h"
#include "launcher/processes/descendants.h"
#include "launcher/processes/exec_failure.h"
#include "launcher/system/exit_status.h"
#include "launcher/system/host_name.h"
#include "launcher/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// timeout(1) and others signal a process and then its group: two interrupts this close are one.
constexpr auto kSameInterrupt = 100ms;
// Shorter waits need no explanation.
constexpr auto kSilentWait = 1s;
// Leftover processes are looked for again after the first, then after pauses that grow up to the second: their own
// children come to us without notice.
constexpr auto kFirstSweepPause = 50ms;
constexpr auto kLongestSweepPause = 400ms;
// How often the other ranks are looked at while one that may have caused a failure is waited for.
constexpr auto kCulpritInterval = 50ms;
// How long a process may block all signals because it is starting another one.
constexpr auto kForkTime = 100ms;
// How long a killed process may take to vanish (a disk or driver can hold it) before ddprun ends without it.
constexpr auto kKillPatience = 10s;

// "a", "b" -> a null-terminated array of pointers into `strings`, as exec wants it (it changes nothing).
std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Supervisor::Supervisor(EventLoop& loop, Guarded& guarded, Messages& messages, RankStreams& streams,
                       SupervisorOptions options)
    : loop_(loop),
      guarded_(guarded),
      messages_(messages),
      streams_(streams),
      options_(std::move(options)),
      spawner_(options_.worker_start),
      leftovers_(guarded_.cgroup) {
  // Whatever a rank leaves behind becomes our child instead of init's, so that it can be found and ended.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  end_.host = host_name();
  loop_.add(guarded_.signals.fd(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
  loop_.add(guarded_.lifeline.get(), EPOLLIN, [this](std::uint32_t) { on_guardian_gone(); });
}

Supervisor::~Supervisor() {
  take_terminal_back();
  loop_.remove(guarded_.signals.fd());
  loop_.remove(guarded_.lifeline.get());
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
  for (const Rank& rank : ranks_) {
    if (rank.process.pidfd) loop_.remove(rank.process.pidfd.get());
    if (rank.running) ::kill(rank.process.pid, SIGKILL);  // only after an exception: they still wait at the gate
  }
}

void Supervisor::start(std::vector<RankPlan> plans) {
  ranks_.reserve(plans.size());
  for (RankPlan& plan : plans) spawn_rank(std::move(plan));
  watch_ranks();
  give_terminal_to_debugged_rank();
  // Rank 0 has it; with a copy of ours open, the guardian would not see rank 0 end.
  if (!options_.may_restart) guarded_.terminal_input.reset();
  end_.start = std::chrono::system_clock::now();
  spawner_.open_gate();
  if (!options_.on_rank_start) return;
  for (const Rank& rank : ranks_) options_.on_rank_start(rank.plan.place, rank.process.pid);
}

void Supervisor::spawn_rank(RankPlan plan) {
  const Program& program = plan.program ? *plan.program : options_.program;
  const std::vector<char*> arguments = pointers_to(program.arguments);
  const std::vector<char*> shell_arguments = pointers_to(program.shell_arguments);
  std::vector<char*> environment;
  environment.reserve(options_.environment.size() + plan.variables.size() + 1);
  for (const std::string& entry : options_.environment) environment.push_back(const_cast<char*>(entry.c_str()));
  for (const std::string& entry : plan.variables) environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  const RankDescriptors descriptors = plan.in_terminal ? RankDescriptors{} : streams_.add_rank(plan.place);
  const SpawnRequest request{.file = program.file.c_str(),
                             .arguments = arguments.data(),
                             .shell_arguments = program.shell_arguments.empty() ? nullptr : shell_arguments.data(),
                             .environment = environment.data(),
                             .binding = plan.binding ? &*plan.binding : nullptr,
                             .stdin_fd = descriptors.input,
                             .stdout_fd = descriptors.output,
                             .stderr_fd = descriptors.error};

  SpawnedProcess process = spawner_.spawn(request);
  ranks_.push_back({.plan = std::move(plan), .process = std::move(process), .running = true});
  ++running_;
}

void Supervisor::watch_ranks() {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    SpawnedProcess& process = ranks_[index].process;
    rank_of_pid_[process.pid] = index;
    spawner_.watch(process);
    if (process.pidfd) loop_.add(process.pidfd.get(), EPOLLIN, [this, index](std::uint32_t) { on_rank_event(index); });
  }
  streams_.all_added();
}

// Before the gate opens: a debugger that reads the terminal from the background would be suspended.
void Supervisor::give_terminal_to_debugged_rank() {
  const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.plan.in_terminal; });
  if (rank == ranks_.end()) return;
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
  if (foreground != guarded_.guardian_group) return;  // somebody else has the terminal: then as any background job
  terminal_group_ = foreground;
  ::tcsetpgrp(STDIN_FILENO, rank->process.pid);
}

void Supervisor::take_terminal_back() {
  if (terminal_group_ > 0) ::tcsetpgrp(STDIN_FILENO, terminal_group_);
  terminal_group_ = 0;
}

JobEnd Supervisor::wait() {
  while (!done_) loop_.run_once();
  for (RankEnd& rank : end_.ranks) {
    if (rank.failed() && !rank.error)
      rank.error = read_error_file(ranks_[static_cast<std::size_t>(rank.local_rank)].plan.error_file);
  }
  return end_;
}

void Supervisor::on_signals() {
  while (const auto info = guarded_.signals.next()) on_signal(*info);
}

void Supervisor::on_signal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (guarded_.signals.is_stop(number)) {
    on_stop_signal(number);
    return;
  }
  switch (number) {
    case SIGCHLD:
      // Where there is no pidfd, the first of several endings is the one that this signal carries.
      if (const auto rank = rank_of_pid_.find(static_cast<pid_t>(info.ssi_pid)); rank != rank_of_pid_.end()) {
        if (!ranks_[rank->second].process.pidfd) on_rank_event(rank->second);
      }
      reap_children();
      return;
    case SIGWINCH:
      streams_.update_window_sizes();
      for (const Rank& rank : ranks_) signal_group(rank, number);
      return;
    case SIGTSTP:  // Ctrl-Z reached only the guardian: the ranks are in groups of their own
    case SIGCONT:
      for (const Rank& rank : ranks_) signal_group(rank, number);
      suspend_guardian(number == SIGTSTP);
      return;
    case SIGUSR1:
    case SIGUSR2:
      pass_on(number);
      return;
    default:
      return;
  }
}

// The shell waits for the guardian to stop, and then writes its prompt: behind our last words.
void Supervisor::suspend_guardian(bool suspend) {
  streams_.suspend_display(suspend);
  // "Continue" may have overtaken our "stop": then once more.
  if ((suspend || guardian_suspended_) && !guardian_gone_) ::kill(guarded_.guardian, suspend ? SIGSTOP : SIGCONT);
  guardian_suspended_ = suspend;
}

// To those who have a handler for it: it ends all others.
void Supervisor::pass_on(int user_signal) {
  const SignalTargets targets = signal_targets(running_ranks(), user_signal);
  send_to(targets, user_signal);
  if (targets.undecided.empty()) return;
  timers_.push_back(loop_.call_at(Clock::now() + kForkTime, [this, targets, user_signal] {
    send_to(decided_targets(targets, user_signal), user_signal);
  }));
}

void Supervisor::send_to(const SignalTargets& targets, int user_signal) {
  for (const ProcessIdentity& process : targets.takers) signal_process(process, user_signal);
  if (targets.without.empty() || !unheard_.insert(user_signal).second) return;
  messages_.say(signal_name(user_signal) + " was not passed on to " + rank_list(targets.without) +
                ": nothing there has a handler for it, and it would end what has none");
}

void Supervisor::on_stop_signal(int number) {
  told_to_stop_ = true;
  if (done_) {
    impatient_ = true;
    return;
  }
  if (end_.stop_signal == 0 && !stopping_) {
    end_.stop_signal = number;
    if (options_.on_stop) {
      options_.on_stop("host " + end_.host + " was told to stop by " + signal_name(number),
                       to_int(ExitStatus::kSignalBase) + number);
    }
  }
  const auto now = Clock::now();
  if (number == SIGINT || number == SIGQUIT) {
    if (first_interrupt_ && now - *first_interrupt_ > kSameInterrupt) {
      kill_everything();
      messages_.say("interrupted again: killed all processes");
      return;
    }
    if (!first_interrupt_) first_interrupt_ = now;
  }
  // Once: a handler that takes a second signal for impatience must not see one that the user did not send.
  if (forwarded_.insert(number).second) stop_ranks(number);
}

void Supervisor::on_guardian_gone() {
  loop_.remove(guarded_.lifeline.get());
  impatient_ = true;
  guardian_gone_ = true;
  kill_everything();
  messages_.say("one of its processes was killed; all ranks have been killed");
}

void Supervisor::on_rank_event(std::size_t index) {
  Rank& rank = ranks_[index];
  if (!rank.running) return;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(rank.process.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return;

  record_end(rank, info);
  const bool failed = end_.ranks.back().failed();
  // While the dead leader is not reaped, its number cannot become somebody else's group: last chance to signal the
  // group.
  if (killing_) {
    ::kill(-rank.process.pid, SIGKILL);
  } else if (failed && !rank.told_to_stop) {  // else they have been asked with it
    ::kill(-rank.process.pid, SIGTERM);
    ::kill(-rank.process.pid, SIGCONT);
    leftovers_.note_asked(rank.process.pid, SIGTERM);
  }
  if (rank.process.pidfd) loop_.remove(rank.process.pidfd.get());
  rank.process.pidfd.reset();
  ::waitid(P_PID, static_cast<id_t>(rank.process.pid), &info, WEXITED | WNOHANG);
  rank_of_pid_.erase(rank.process.pid);
  rank.running = false;
  --running_;
  if (rank.plan.in_terminal) take_terminal_back();

  if (failed && !stopping_) on_failure(rank);
  reap_children();
  if (running_ == 0) begin_sweep();
}

// A rank that says that its peer went away is not the first to fail: its peer is, which may still be tearing down.
void Supervisor::on_failure(const Rank& rank) {
  RankEnd& end = end_.ranks.back();
  if (!end.error) end.error = read_error_file(rank.plan.error_file);  // else it could not even be executed
  streams_.describe(end_);
  if (running_ == 0 || !is_consequence(end)) {
    stop_after_failure();
    return;
  }
  const bool is_first = !culprit_.has_begun();
  culprit_.add_victim(Clock::now(), is_vague_consequence(end));
  if (is_first) watch_for_culprit();
}

void Supervisor::watch_for_culprit() {
  if (stopping_ || done_) return;
  if (!culprit_.goes_on(Clock::now(), is_somebody_ending())) {
    stop_after_failure();
    return;
  }
  timers_.push_back(loop_.call_at(Clock::now() + kCulpritInterval, [this] { watch_for_culprit(); }));
}

bool Supervisor::is_somebody_ending() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    if (!rank.running) return false;
    const auto process = identify(rank.process.pid);
    return (process && process->is_ending) || ::access(rank.plan.error_file.c_str(), F_OK) == 0;
  });
}

void Supervisor::stop_after_failure() {
  if (stopping_ || done_) return;
  const auto first = first_failure(end_);
  if (options_.on_stop && first) {
    const RankEnd& end = end_.ranks[*first];
    options_.on_stop("rank " + std::to_string(end.rank) + " on host " + end_.host + " " + describe_end(end),
                     status_of(end));
  }
  stop_ranks(SIGTERM);
}

void Supervisor::record_end(Rank& rank, const siginfo_t& info) {
  RankEnd end{.rank = rank.plan.place.rank,
              .local_rank = rank.plan.place.local_rank,
              .pid = rank.process.pid,
              .told_to_stop = rank.told_to_stop,
              .time = std::chrono::system_clock::now()};
  if (info.si_code == CLD_EXITED) {
    end.exit_code = info.si_status;
  } else {
    end.signal = info.si_status;
    end.core_dumped = info.si_code == CLD_DUMPED;
  }
  if (end.exit_code == to_int(ExitStatus::kNotFound) || end.exit_code == to_int(ExitStatus::kNotExecutable)) {
    if (const int error = spawner_.exec_error(rank.process.pid); error != 0) {
      end.was_executed = false;
      end.error = ErrorRecord{.message = why_not_executed(rank.plan, error)};
    }
  }
  end_.ranks.push_back(std::move(end));
  if (options_.on_rank_end) options_.on_rank_end(end_.ranks.back());
}

std::string Supervisor::why_not_executed(const RankPlan& plan, int error) const {
  const Program& program = plan.program ? *plan.program : options_.program;
  std::vector<std::string> environment = options_.environment;
  environment.insert(environment.end(), plan.variables.begin(), plan.variables.end());
  return exec_failure_text(program.file, error, program.arguments, environment,
                           static_cast<std::size_t>(std::max(0L, ::sysconf(_SC_ARG_MAX))));
}

// Reaps what came to us as subreaper. A dead rank ends the round: its own event reads its status, and comes back here.
void Supervisor::reap_children() {
  siginfo_t info{};
  while (true) {
    info.si_pid = 0;
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    const auto rank = rank_of_pid_.find(info.si_pid);
    if (rank != rank_of_pid_.end()) {
      if (ranks_[rank->second].process.pidfd) return;
      on_rank_event(rank->second);
      return;
    }
    ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
  }
  if (sweeping_ && !leftovers_.exist()) done_ = true;
}

void Supervisor::signal_group(const Rank& rank, int signal_number) const {
  if (rank.running) ::kill(-rank.process.pid, signal_number);
}

void Supervisor::stop_because(FailureNotice failure) {
  if (done_ || stopping_) return;
  end_.elsewhere = std::move(failure);
  stop_ranks(SIGTERM);
}

std::map<pid_t, int> Supervisor::running_ranks() const {
  std::map<pid_t, int> running;
  for (const Rank& rank : ranks_) {
    if (rank.running) running.emplace(rank.process.pid, rank.plan.place.rank);
  }
  return running;
}

void Supervisor::stop_late(std::string reason) {
  if (done_ || stopping_) return;
  end_.late_reason = std::move(reason);
  stop_ranks(SIGTERM);
}

void Supervisor::stop_ranks(int signal_number) {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    rank.told_to_stop = true;
    signal_group(rank, signal_number);
    signal_group(rank, SIGCONT);  // a suspended process would not notice
    leftovers_.note_asked(rank.process.pid, signal_number);
  }
  if (!stopping_) begin_grace();
}

void Supervisor::begin_grace() {
  stopping_ = true;
  const auto now = Clock::now();
  kill_at_ = now + options_.grace;
  timers_.push_back(loop_.call_at(kill_at_, [this] { kill_everything(); }));
  timers_.push_back(loop_.call_at(now + kSilentWait, [this] { say_what_we_wait_for(); }));
}

void Supervisor::say_what_we_wait_for() {
  if (done_ || killing_) return;
  const auto left = std::chrono::ceil<std::chrono::seconds>(kill_at_ - Clock::now());
  const std::string what = running_ > 0 ? std::to_string(running_) + (running_ == 1 ? " rank" : " ranks")
                                        : std::string("processes that the ranks left behind");
  messages_.say("waiting up to " + std::to_string(left.count()) + " s for " + what + " to stop; Ctrl-C kills at once");
}

void Supervisor::kill_everything() {
  if (done_) return;
  if (!killing_) {
    killing_ = true;
    timers_.push_back(loop_.call_at(Clock::now() + kKillPatience, [this] { give_up(); }));
  }
  stopping_ = true;
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    rank.told_to_stop = true;
    signal_group(rank, SIGKILL);
  }
  leftovers_.kill();
  sweep_pause_ = kFirstSweepPause;
}

void Supervisor::begin_sweep() {
  if (sweeping_ || done_) return;
  sweeping_ = true;
  if (!leftovers_.exist() || (options_.keep_daemons && !killing_)) {
    done_ = true;
    return;
  }
  if (!stopping_) begin_grace();
  sweep_pause_ = kFirstSweepPause;
  sweep();
}

// All ranks are gone: end what they left behind. Runs until there is nothing any more.
void Supervisor::sweep() {
  if (done_) return;
  if (!leftovers_.exist()) {
    done_ = true;
    return;
  }
  if (!identify(::getpid())) {
    messages_.say("cannot find the processes that the ranks left behind: /proc is not readable here");
    done_ = true;
    return;
  }
  if (killing_) {
    leftovers_.kill();
  } else {
    leftovers_.ask();
  }
  timers_.push_back(loop_.call_at(Clock::now() + sweep_pause_, [this] { sweep(); }));
  sweep_pause_ = std::min<Clock::duration>(2 * sweep_pause_, kLongestSweepPause);
}

void Supervisor::give_up() {
  if (done_) return;
  std::string pids;
  for (const ProcessIdentity& process : processes_of_job(guarded_.cgroup))
    pids.append(" ").append(std::to_string(process.pid));
  messages_.say("these processes do not end although they were killed, the kernel may be holding them:" + pids);
  done_ = true;
}

}  // namespace launcher
