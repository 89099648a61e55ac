#include "launcher/remote/session.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "launcher/local/output/reader_timeout.h"
#include "launcher/os/network/address.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/option_sources.h"
#include "launcher/remote/job_plan.h"
#include "launcher/remote/job_start_message.h"

namespace launcher::remote {
namespace {

using namespace std::chrono_literals;

// How long the hosts may take to end after a second Ctrl-C.
constexpr auto kGiveUpTimeout = 12s;
// timeout(1) and others signal a process and then its group, so two interrupts within this time count as one.
constexpr auto kSameInterrupt = 100ms;
// How long the hosts may take for --check.
constexpr auto kCheckTimeout = 60s;

bool is_own(const std::string& address) {
  const auto found = numeric_addresses(address, 0);
  return std::any_of(found.begin(), found.end(), is_own_address);
}

// How long the hosts may take to end in addition to the grace time.
constexpr auto kExtraAgentGraceTime = 30s;
// How long connections may take to end when there is nothing more to send.
constexpr auto kClosing = 5s;
// How often ddprun checks whether to continue to wait for a reader.
constexpr auto kTickInterval = 50ms;

}  // namespace

Session::Session(const Options& options, const std::vector<JobNode>& nodes)
    : options_(options),
      nodes_(nodes),
      signals_(options.stop_signals.empty() ? default_stop_signals() : options.stop_signals),
      console_(loop_, {.on_taken =
                           [this](std::uint32_t host, std::size_t stream, std::size_t bytes) {
                             connections_.send({Kind::kCredit, host,
                                                encode_amount(static_cast<std::uint32_t>(stream)) +
                                                    encode_amount(static_cast<std::uint32_t>(bytes))});
                           },
                       .on_closed =
                           [this](std::size_t stream) {
                             send_amount(Kind::kOutputClosed, kEveryHost, static_cast<std::uint32_t>(stream));
                             for (HostState& host : hosts_.all()) host.is_output_over.at(stream) = true;
                           }}),
      hosts_(nodes),
      connections_(
          loop_, ssh_settings(options), signals_.original_mask(),
          {.on_frame = [this](Frame frame) { on_frame(std::move(frame)); },
           .on_unreachable = [this](const NamedHost& host, const std::string& why) { on_unreachable(host, why, true); },
           .on_lost = [this](const NamedHost& host, const std::string& why) { on_lost(host, why); },
           .on_line = [this](const std::string& line) { console_.print(line); }}) {
  check_for_hosts(options, nodes);
  if (options.mode == Options::Mode::kCheck) {
    check_.emplace(nodes.size(), [this](const Frame& frame) { connections_.send(frame); });
  }
  loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
}

Session::~Session() {
  loop_.remove(signals_.fd());
}

void Session::send_amount(Kind kind, std::uint32_t host, std::uint32_t amount) {
  connections_.send({kind, host, encode_amount(amount)});
}

int Session::run() {
  if (options_.timeout) loop_.call_at(EventLoop::Clock::now() + *options_.timeout, [this] { on_timeout(); });
  connections_.connect(hosts_.hosts());
  begin_when_all_answered();
  while (!is_over()) loop_.run_once();
  return finish();
}

bool Session::is_over() const {
  if (gives_up_ || !has_begun_) return gives_up_ || is_stopping_;
  return check_ ? hosts_.are_all_finished() : hosts_.have_all_ended();  // output may still wait for its reader
}

void Session::on_signals() {
  while (const auto info = signals_.next()) {
    const int number = static_cast<int>(info->ssi_signo);
    if (signals_.is_stop(number)) {
      on_stop_signal(number);
    } else if (number == SIGCHLD) {
      connections_.reap();
    } else if (number == SIGTSTP) {
      suspend();
    } else if (number == SIGCONT || number == SIGUSR1 || number == SIGUSR2) {
      send_amount(Kind::kSignal, kEveryHost, info->ssi_signo);
      if (number == SIGCONT && input_) input_->resume();
    }
  }
}

void Session::on_stop_signal(int number) {
  const auto now = EventLoop::Clock::now();
  const bool is_interrupt = number == SIGINT || number == SIGQUIT;
  const bool is_again = is_interrupt && first_interrupt_ && now - *first_interrupt_ > kSameInterrupt;
  if (is_interrupt && !first_interrupt_) first_interrupt_ = now;
  if (has_begun_ && hosts_.have_all_ended()) must_end_now_ = true;
  if (!has_begun_) note_status(to_int(ExitStatus::kSignalBase) + number);
  stop(number);
  if (is_again) give_up_after(kGiveUpTimeout);
}

// Suspends the hosts' ranks first, and then this process.
void Session::suspend() {
  send_amount(Kind::kSignal, kEveryHost, SIGTSTP);
  ::raise(SIGSTOP);
}

void Session::on_timeout() {
  timed_out_at_ = EventLoop::Clock::now();
  if (has_begun_) return;  // each host's own ddprun has the timeout as well, and prints more
  console_.print("stopped because --timeout expired before all hosts were reached" +
                 option_sources("--timeout", options_.variables));
  note_status(to_int(ExitStatus::kTimeout));
  is_stopping_ = true;
}

void Session::on_frame(Frame frame) {
  HostState* host = hosts_.find(frame.host);
  if (host == nullptr) return;
  std::string_view bytes = frame.bytes;
  switch (frame.kind) {
    case Kind::kHello:
      host->hello = decode<Hello>(bytes);
      host->connection_failure.reset();
      if (!host->hello)
        host->connection_failure = "its ddprun sent an unknown message: use the same version on all hosts";
      begin_when_all_answered();
      return;
    case Kind::kUnreachable:
    case Kind::kLost: {
      const auto why = decode<Ending>(bytes);
      if (!why) return;
      if (frame.kind == Kind::kLost) return on_lost(host->host, why->text);
      return on_unreachable(host->host, why->text, false);
    }
    case Kind::kOutput:
      return on_output(*host, bytes);
    case Kind::kOutputEnd:
      if (const auto stream = take_amount(bytes); stream && *stream <= 1) host->is_output_over[*stream] = true;
      return;
    case Kind::kEnded:
      return on_ended(*host, bytes);
    case Kind::kInputTaken:
      if (const auto amount = take_amount(bytes); amount && input_) input_->taken(frame.host, *amount);
      return;
    case Kind::kInputClosed:
      if (input_) input_->closed(frame.host);
      return;
    case Kind::kClock:
      if (check_) check_->on_clock(*host, bytes);
      return;
    default:
      return;
  }
}

void Session::on_output(HostState& host, std::string_view bytes) {
  const auto stream = take_amount(bytes);
  if (!stream || *stream > 1) return;
  if (check_) return check_->on_output(host.host.number, *stream, bytes);
  console_.add(host.host.number, *stream, std::string(bytes));
}

void Session::on_ended(HostState& host, std::string_view bytes) {
  auto ending = decode<Ending>(bytes);
  if (!ending || host.ending) return;
  if (input_) input_->closed(host.host.number);
  host.ending = std::move(*ending);
  if (host.ending->text.empty()) return note_status(static_cast<int>(host.ending->status));
  // Its ddprun did not start, so the other nodes do not know it.
  host.is_output_over = {true, true};
  if (check_) {
    host.connection_failure = host.ending->text;
    return;
  }
  console_.print("host " + host.host.name + ": " + host.ending->text);
  note_status(static_cast<int>(host.ending->status));
  stop(SIGTERM);
}

// A host that connects to further hosts may not be able to reach a host that this machine can reach.
void Session::on_unreachable(const NamedHost& named, const std::string& why, bool is_direct) {
  HostState* host = hosts_.find(named.number);
  if (host == nullptr || is_stopping_) return;
  if (is_direct || std::exchange(host->was_tried_directly, true)) {
    host->connection_failure = why;
    begin_when_all_answered();
  } else {
    connections_.connect({host->host});
  }
}

void Session::on_lost(const NamedHost& named, const std::string& why) {
  HostState* host = hosts_.find(named.number);
  if (host == nullptr || host->is_over()) return;
  host->connection_failure = why;
  if (input_) input_->closed(named.number);
  if (check_ || !has_begun_) return begin_when_all_answered();
  if (host->ending) return;  // only the rest of its output was lost
  if (!is_stopping_) {
    console_.print(why);
    // The loss of a host stops its ddpruns. They may have informed the others, which have ended before the loss was
    // noticed here.
    if (status_ == to_int(ExitStatus::kSignalBase) + SIGTERM) status_ = 1;
  }
  note_status(1);
  stop(SIGTERM);
}

void Session::begin_when_all_answered() {
  if (has_begun_ || is_stopping_ || !hosts_.have_all_answered()) return;
  try {
    for (const HostState& host : hosts_.all()) {
      if (!host.connection_failure || check_) continue;
      console_.print("host " + host.host.name + ": " + *host.connection_failure);
      is_stopping_ = true;
    }
    if (is_stopping_) return note_status(to_int(ExitStatus::kLauncherError));
    begin();
  } catch (const LaunchError& error) {
    console_.print(error.what());
    note_status(to_int(error.status()));
    is_stopping_ = true;
  }
}

void Session::begin() {
  const JobStartMessage message = make_job_start_message(options_, nodes_, hosts_.hellos(), is_own);
  if (!message.note.empty()) console_.print(message.note);
  has_begun_ = true;
  for (const HostState& host : hosts_.all()) {
    const std::uint32_t number = host.host.number;
    connections_.send({Kind::kNode, number, encode(node_arguments(nodes_, number, message.endpoint, options_))});
    if (check_) check_->ask_clock(number);
  }
  connections_.send({Kind::kPlan, kEveryHost, encode(message.plan)});
  if (check_) {
    give_up_after(kCheckTimeout);
  } else {
    start_input();
  }
}

void Session::start_input() {
  const std::vector<std::uint32_t> readers = input_nodes(nodes_, options_.standard_input);
  if (readers.empty()) return;
  input_.emplace(loop_, readers, [this, readers](const std::string& bytes) {
    for (const std::uint32_t host : readers) {
      connections_.send({bytes.empty() ? Kind::kInputEnd : Kind::kInput, host, bytes});
    }
  });
}

void Session::stop(int signal) {
  is_stopping_ = true;
  if (!has_begun_) return;
  send_amount(Kind::kSignal, kEveryHost, static_cast<std::uint32_t>(signal));
  if (kill_time_) return;
  kill_time_ = EventLoop::Clock::now() + options_.grace;
  give_up_after(options_.grace + kExtraAgentGraceTime);
}

void Session::give_up_after(EventLoop::Clock::duration time) {
  give_up_timer_.start_in(time, [this] {
    if (is_over()) return;
    if (!check_) console_.print(hosts_.names_of_unfinished() + " did not end in time; not waiting any longer");
    note_status(1);
    gives_up_ = true;
  });
}

// The first status counts, but a failure takes precedence over "saved and stopped".
void Session::note_status(int status) {
  if (status_ == 0 || (status_ == to_int(ExitStatus::kSavedAndStopped) && status != 0)) status_ = status;
}

int Session::finish() {
  input_.reset();
  if (check_ && has_begun_) {
    CheckReport report = check_->report(hosts_);
    console_.add(0, 0, std::move(report.text));
    status_ = report.can_run ? 0 : to_int(ExitStatus::kLauncherError);
  }
  write_all();
  close_connections();
  std::string problem = console_.problem();
  if (problem.empty() && is_output_lost_)
    problem = "output was lost: it was dropped on the hosts because no process read it";
  if (!problem.empty()) {
    console_.print(problem);
    note_status(to_int(ExitStatus::kLauncherError));
  }
  return status_;
}

// The reader may be slow, as on one machine. The hosts send the rest of their output when there is room for it.
void Session::write_all() {
  ReaderTimeout timeout{
      .begin = EventLoop::Clock::now(), .grace = options_.grace, .kill_time = kill_time_, .ended_well = status_ == 0};
  const auto has_more = [this] {
    return !console_.is_empty() || (has_begun_ && !gives_up_ && !hosts_.are_all_finished());
  };
  while (has_more() && !must_end_now_) {
    timeout.timed_out_at = timed_out_at_;
    const auto deadline = timeout.deadline(console_.last_progress());
    if (deadline && EventLoop::Clock::now() >= *deadline) break;
    const auto timer = loop_.call_at(EventLoop::Clock::now() + kTickInterval, [] {});
    loop_.run_once();
    loop_.cancel(timer);
  }
  is_output_lost_ = has_more();
  console_.drop_all();
}

void Session::close_connections() {
  connections_.close();
  bool is_late = false;
  loop_.call_at(EventLoop::Clock::now() + (gives_up_ ? 0s : kClosing), [&is_late] { is_late = true; });
  while (!connections_.is_gone() && !is_late) loop_.run_once();
  connections_.kill();
}

}  // namespace launcher::remote
