#include "launcher/local/processes/supervisor.h"

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/outcome/first_failure.h"
#include "launcher/plan/outcome/notices.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long a rank that lost its connection to a peer waits for that peer to end: the peer may run destructors or write
// a core file.
constexpr auto kTearDownTime = 4s;
// When the peer has really ended, other ranks fail soon, too, or the peer's process is seen to be ending.
constexpr auto kNextVictimTimeout = 500ms;

// timeout(1) and others signal a process and then its group: two interrupts this close are one.
constexpr auto kSameInterrupt = 100ms;
// A shorter wait is not reported.
constexpr auto kMinReportedWait = 1s;
// How often the other ranks are checked while ddprun waits for the rank that may have caused a failure.
constexpr auto kRootCauseInterval = 50ms;
// How long a killed process may take to end (a disk or driver can delay it) before ddprun ends without it.
constexpr auto kKillTimeout = 10s;

}  // namespace

void RootCauseWait::add_victim(Time now, bool is_ambiguous) {
  if (!first_) first_ = now;
  last_ = now;
  are_all_ambiguous_ = are_all_ambiguous_ && is_ambiguous;
}

bool RootCauseWait::continues(Time now, bool is_somebody_ending) const {
  if (!first_ || now >= *first_ + kTearDownTime) return false;
  return !are_all_ambiguous_ || is_somebody_ending || now < last_ + kNextVictimTimeout;
}

Supervisor::Supervisor(EventLoop& loop, SupervisorContext& context, Messages& messages, RankStreams& streams,
                       SupervisorOptions options)
    : loop_(loop),
      context_(context),
      messages_(messages),
      streams_(streams),
      options_(std::move(options)),
      workers_(loop, streams, std::move(options_.workers), [this](std::size_t index) { on_worker_event(index); }),
      orphans_(context_.cgroup),
      sweep_(loop, messages, orphans_, phase_, [this](PhaseEvent event) { advance(event); }),
      user_signals_(loop, messages) {
  // Makes this process the subreaper: processes that a rank leaves running become its children instead of init's, so
  // that it can find and end them.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  end_.host = host_name();
  loop_.add(context_.signals.fd(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
  loop_.add(context_.guardian_pipe.get(), EPOLLIN, [this](std::uint32_t) { on_guardian_gone(); });
}

Supervisor::~Supervisor() {
  loop_.remove(context_.signals.fd());
  loop_.remove(context_.guardian_pipe.get());
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
}

void Supervisor::start(std::vector<RankPlan> plans) {
  workers_.fork(std::move(plans));
  // This comes before the gate opens: a debugger that reads the terminal in the background would be suspended.
  if (const auto debugged = workers_.in_terminal()) {
    terminal_.hand_foreground_to(workers_[*debugged].process.pid, context_.guardian_group);
  }
  // Rank 0 has this descriptor. As long as the supervisor has a copy, the guardian does not see that rank 0 has ended.
  if (!options_.may_restart) context_.terminal_input.reset();
  end_.start = std::chrono::system_clock::now();
  workers_.open_gate();
  for (const Worker& worker : workers_.workers()) options_.on_rank_start(worker.plan.place, worker.process.pid);
  // No rank was running when the request to stop arrived.
  if (is_stopping()) stop_ranks(end_.stop_signal != 0 ? end_.stop_signal : SIGTERM);
  if (is_killing(phase_)) kill_everything();
}

JobEnd Supervisor::wait() {
  while (!is_done(phase_)) loop_.run_once();
  for (RankEnd& rank : end_.ranks) {
    if (rank.failed() && !rank.error)
      rank.error = read_error_file(workers_[static_cast<std::size_t>(rank.local_rank)].plan.error_file);
  }
  return end_;
}

void Supervisor::call_after(Clock::duration time, std::function<void()> action) {
  timers_.push_back(loop_.call_at(Clock::now() + time, std::move(action)));
}

// This is the only place where the phase changes. next_phase() has all transitions.
void Supervisor::advance(PhaseEvent event) {
  const Phase before = phase_;
  phase_ = next_phase(before, event);
  if (before == Phase::kRunning && (phase_ == Phase::kStopping || phase_ == Phase::kEndingOrphans)) begin_grace();
  if (!is_killing(before) && is_killing(phase_)) call_after(kKillTimeout, [this] { give_up(); });
}

void Supervisor::on_signals() {
  while (const auto info = context_.signals.next()) on_signal(*info);
}

void Supervisor::on_signal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (context_.signals.is_stop(number)) {
    on_stop_signal(number);
    return;
  }
  switch (number) {
    case SIGCHLD:
      // Without a pidfd the end is found by this signal. When several processes end, the signal contains only the first
      // of them.
      if (const auto index = workers_.find(static_cast<pid_t>(info.ssi_pid));
          index && !workers_[*index].process.pidfd) {
        on_worker_event(*index);
      }
      reap_children();
      return;
    case SIGWINCH:
      streams_.update_window_sizes();
      workers_.signal_all(number);
      return;
    case SIGTSTP:  // Ctrl-Z reached only the guardian, because the ranks have process groups of their own
    case SIGCONT:
      workers_.signal_all(number);
      suspend_guardian(number == SIGTSTP);
      return;
    case SIGUSR1:
    case SIGUSR2:
      user_signals_.pass_on(workers_.running_ranks(), number);
      return;
  }
}

// Stops or continues the guardian. The shell waits until the guardian is stopped, and then writes its prompt after
// ddprun's last output.
void Supervisor::suspend_guardian(bool suspend) {
  streams_.suspend_display(suspend);
  if (guardian_ == Guardian::kGone) return;
  // SIGCONT may have arrived before our SIGSTOP. Then it is sent again.
  if (suspend || guardian_ == Guardian::kSuspended) ::kill(context_.guardian, suspend ? SIGSTOP : SIGCONT);
  guardian_ = suspend ? Guardian::kSuspended : Guardian::kRuns;
}

void Supervisor::on_stop_signal(int number) {
  // Each signal is forwarded only once: the handler of a program may take a second signal as a request to end at once,
  // which the user did not send.
  const bool is_new = stop_signals_.insert(number).second;
  if (is_done(phase_)) {
    // A user may stop a job on all nodes at once, and this node may have learned of it from another one first.
    const bool is_known = is_new && end_.elsewhere && end_.elsewhere->stop_signal == number;
    if (!is_known) advance(PhaseEvent::kDismiss);
    return;
  }
  if (end_.stop_signal == 0 && phase_ == Phase::kRunning) {
    end_.stop_signal = number;
    options_.on_stop(notice_of_stop(end_.host, number));
  }
  if (is_interrupt_again(number)) {
    kill_everything();
    messages_.print("interrupted again: killed all processes");
  } else if (is_new) {
    stop_ranks(number);
  }
}

bool Supervisor::is_interrupt_again(int number) {
  if (number != SIGINT && number != SIGQUIT) return false;
  const auto now = Clock::now();
  if (!first_interrupt_) first_interrupt_ = now;
  return now - *first_interrupt_ > kSameInterrupt;
}

void Supervisor::on_guardian_gone() {
  loop_.remove(context_.guardian_pipe.get());
  guardian_ = Guardian::kGone;
  if (phase_ == Phase::kRunning) options_.on_stop(notice_of_loss(end_.host));
  kill_everything();
  messages_.print("one of its processes was killed; all ranks have been killed");
}

void Supervisor::on_worker_event(std::size_t index) {
  auto end = workers_.end_of(index);
  if (!end) return;
  const bool is_own_failure = end->failed() && !end->stop_requested;
  end_.ranks.push_back(std::move(*end));
  options_.on_rank_end(end_.ranks.back());
  // As long as the group's leader is not reaped, its number cannot become the number of another group. This is the last
  // chance to signal the group.
  if (is_killing(phase_)) {
    workers_.kill(index);
  } else if (is_own_failure) {  // else the process group was asked to stop together with its leader
    workers_.ask_to_stop(index, SIGTERM, orphans_);
  }
  workers_.reap(index);
  if (workers_[index].plan.in_terminal) terminal_.take_back();

  if (end_.ranks.back().failed() && phase_ == Phase::kRunning) on_failure(index);
  reap_children();
  if (workers_.running() == 0) end_orphans();
}

// A rank that reports a closed connection to a peer did not fail first. The peer did, and may still be ending.
void Supervisor::on_failure(std::size_t index) {
  RankEnd& end = end_.ranks.back();
  if (!end.error) end.error = read_error_file(workers_[index].plan.error_file);  // else its exec failed
  streams_.describe(end_);
  if (workers_.running() == 0 || !is_consequence(end)) {
    stop_after_failure();
    return;
  }
  const bool is_first = !root_cause_.has_begun();
  root_cause_.add_victim(Clock::now(), is_ambiguous_consequence(end));
  if (is_first) watch_for_root_cause();
}

void Supervisor::watch_for_root_cause() {
  if (phase_ != Phase::kRunning) return;
  if (!root_cause_.continues(Clock::now(), workers_.is_any_ending())) {
    stop_after_failure();
    return;
  }
  call_after(kRootCauseInterval, [this] { watch_for_root_cause(); });
}

void Supervisor::stop_after_failure() {
  if (phase_ != Phase::kRunning) return;
  const auto first = first_failure(end_);
  if (first) options_.on_failure(end_, *first);
  stop_ranks(SIGTERM);
}

// Reaps processes that were left to this process as their subreaper. Stops at a rank that has ended: its own event
// reads its status, and calls this function again.
void Supervisor::reap_children() {
  siginfo_t info{};
  while (true) {
    info.si_pid = 0;
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    if (const auto index = workers_.find(info.si_pid)) {
      if (!workers_[*index].process.pidfd) on_worker_event(*index);
      return;
    }
    ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
  }
  if (is_ending_orphans(phase_) && !orphans_.exist()) advance(PhaseEvent::kAllGone);
}

void Supervisor::stop_because(FailureNotice failure) {
  if (phase_ != Phase::kRunning) return;
  end_.elsewhere = std::move(failure);
  stop_ranks(SIGTERM);
}

void Supervisor::stop_on_timeout(std::string reason, bool restarts) {
  if (phase_ != Phase::kRunning) return;
  options_.on_stop(notice_of_timeout(end_.host, reason, restarts));
  end_.timeout_reason = std::move(reason);
  end_.restarts_after_timeout = restarts;
  stop_ranks(SIGTERM);
}

void Supervisor::stop_ranks(int signal_number) {
  workers_.ask_all_to_stop(signal_number, orphans_);
  advance(PhaseEvent::kStop);
}

void Supervisor::begin_grace() {
  kill_at_ = Clock::now() + options_.options->grace;
  call_after(options_.options->grace, [this] { kill_everything(); });
  call_after(kMinReportedWait, [this] { print_running_ranks(); });
}

void Supervisor::print_running_ranks() {
  if (is_done(phase_) || is_killing(phase_)) return;
  const auto left = std::chrono::ceil<std::chrono::seconds>(kill_at_ - Clock::now());
  const std::size_t running = workers_.running();
  const std::string what = running > 0 ? std::to_string(running) + (running == 1 ? " rank" : " ranks")
                                       : std::string("processes that the ranks left running");
  messages_.print("waiting up to " + std::to_string(left.count()) + " s for " + what +
                  " to stop; Ctrl-C kills at once");
}

void Supervisor::kill_everything() {
  if (is_done(phase_)) return;
  advance(PhaseEvent::kKill);
  workers_.kill_all();
  orphans_.kill();
  sweep_.shorten_interval();
}

// Called when the ranks have ended. Ends the processes that they left running.
void Supervisor::end_orphans() {
  if (is_done(phase_) || is_ending_orphans(phase_)) return;
  if (!orphans_.exist() || (options_.options->keep_daemons && !is_killing(phase_))) {
    advance(PhaseEvent::kAllGone);
    return;
  }
  advance(PhaseEvent::kRanksGone);
  sweep_.begin();
}

void Supervisor::give_up() {
  if (is_done(phase_)) return;
  std::string pids;
  for (const auto& process : processes_of_job(context_.cgroup)) pids.append(" ").append(std::to_string(process.pid));
  messages_.print("these processes were killed but have not ended; the kernel may be blocking them:" + pids);
  advance(PhaseEvent::kGiveUp);
}

}  // namespace launcher
