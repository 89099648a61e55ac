#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/nodes/control/secret.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/signals.h"
#include "launcher/os/version.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/commands.h"
#include "launcher/remote/host_connections.h"
#include "launcher/remote/node_process.h"
#include "launcher/remote/ssh_command.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {
namespace {

using namespace std::chrono_literals;

// How long a ddprun that was asked to stop may take in addition to its grace time.
constexpr auto kExtraGraceTime = 20s;
// If a ddprun receives no task and its channel is silent for this long, the other end no longer needs it.
constexpr auto kTaskTimeout = 60s;

// Moves a descriptor to another number, so that this process and its children do not read or write it by accident.
UniqueFd take_over(int fd) {
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!own) throw LaunchError("standard input and output must be a channel to another ddprun");
  ::fcntl(own.get(), F_SETFL, ::fcntl(own.get(), F_GETFL) | O_NONBLOCK);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), fd);
  return own;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Agent {
 public:
  Agent()
      : signals_(default_stop_signals()),
        channel_(loop_, take_over(STDIN_FILENO), take_over(STDOUT_FILENO),
                 {.on_frame = [this](const Frame& frame) { on_frame(frame); }, .on_end = [this] { stop(); }}),
        kept_port_(reserve_port()) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // inherits the ranks of a ddprun that is killed
    loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
    channel_.send_bytes(greeting(kDdprunVersion));
    tick();
  }

  int run() {
    while (!is_stopping_ || (node_process_ && !node_process_->is_gone()) || (connections_ && !connections_->is_gone()))
      loop_.run_once();
    while (node_process_ && node_process_->was_killed() && has_orphans() && !gives_up_) loop_.run_once();
    return 0;
  }

 private:
  void on_signals() {
    while (const auto info = signals_.next()) {
      const int number = static_cast<int>(info->ssi_signo);
      if (number == SIGCHLD) {
        if (node_process_) node_process_->reap();
        if (connections_) connections_->reap();
      } else if (node_process_) {
        node_process_->signal(number);
      } else if (signals_.is_stop(number)) {
        stop();
      }
    }
  }

  // Reaps children that have ended. Returns whether others still run.
  static bool has_orphans() {
    siginfo_t info{};
    int result = 0;
    do {
      info.si_pid = 0;
      result = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG);
    } while (result == 0 && info.si_pid != 0);
    return result == 0;
  }

  void on_frame(const Frame& frame) {
    if (frame.kind == Kind::kPing) {
      channel_.send({Kind::kPong, number_, ""});
    } else if (frame.kind == Kind::kTask && !connections_) {
      begin(frame);
    } else if (connections_) {
      if (frame.host != number_) connections_->send(frame);
      if (frame.host == number_ || frame.host == kEveryHost) on_own_frame(frame);
    }
  }

  void begin(const Frame& frame) {
    auto task = decode<Task>(frame.bytes);
    if (!task) {
      stop();
      return;
    }
    number_ = task->number;
    timeout_ = std::chrono::milliseconds(task->ssh.timeout_ms);
    const auto tell = [this](Kind kind) {
      return [this, kind](const NamedHost& host, const std::string& why) {
        channel_.send({kind, host.number, encode(Ending{0, why})});
      };
    };
    connections_.emplace(
        loop_, task->ssh, signals_.original_mask(),
        HostConnections::Callbacks{.on_frame = [this](const Frame& other) { channel_.send(other); },
                                   .on_unreachable = tell(Kind::kUnreachable),
                                   .on_lost = tell(Kind::kLost),
                                   .on_line = [](const std::string& line) { print_block(line + "\n"); }});
    connections_->connect(task->hosts);
    const Hello hello{.host_name = host_name(),
                      .connection = variable("SSH_CONNECTION"),
                      .port = kept_port_ ? port_of(kept_port_.get()) : 0U,
                      .has_secrets = control::has_secrets()};
    channel_.send({Kind::kHello, number_, encode(hello)});
  }

  void on_own_frame(const Frame& frame) {
    std::string_view bytes = frame.bytes;
    switch (frame.kind) {
      case Kind::kNode:
        node_ = decode<NodeArguments>(bytes);
        return;
      case Kind::kPlan:
        start(decode<Plan>(bytes));
        return;
      case Kind::kSignal:
        if (const auto number = take_amount(bytes)) on_signal_for_part(static_cast<int>(*number));
        return;
      case Kind::kAskClock:
        if (const auto clock = decode<Clock>(bytes)) {
          channel_.send({Kind::kClock, number_, encode(Clock{clock->asked_ns, wall_clock_ns()})});
        }
        return;
      default:
        if (node_process_) pass_to_part(frame.kind, bytes);
    }
  }

  void pass_to_part(Kind kind, std::string_view bytes) {
    switch (kind) {
      case Kind::kCredit: {
        const auto stream = take_amount(bytes);
        const auto amount = take_amount(bytes);
        if (stream && amount) node_process_->add_credit(*stream, *amount);
        return;
      }
      case Kind::kOutputClosed:
        if (const auto stream = take_amount(bytes)) node_process_->close_output(*stream);
        return;
      case Kind::kInput:
        node_process_->add_input(bytes);
        return;
      case Kind::kInputEnd:
        node_process_->end_input();
        return;
      default:
        return;
    }
  }

  void start(const std::optional<Plan>& plan) {
    if (!plan || !node_ || node_process_ || is_stopping_) return;
    grace_ = std::chrono::milliseconds(plan->grace_ms);
    if (plan->is_check && kept_port_) ::listen(kept_port_.get(), SOMAXCONN);
    try {
      node_process_ =
          std::make_unique<NodeProcess>(loop_, *plan, *node_, signals_.original_mask(), [this](Frame frame) {
            frame.host = number_;
            channel_.send(frame);
          });
    } catch (const LaunchError& error) {
      const Ending ending{static_cast<std::uint32_t>(to_int(error.status())), error.what()};
      channel_.send({Kind::kEnded, number_, encode(ending)});
    }
  }

  // While the job is suspended, the other end sends nothing.
  void on_signal_for_part(int number) {
    if (number == SIGTSTP) is_suspended_ = true;
    if (number == SIGCONT) is_suspended_ = false;
    if (node_process_) node_process_->signal(number);
  }

  void tick() {
    const auto now = EventLoop::Clock::now();
    if (now - next_tick_ > timeout_ / 4) listening_since_ = now;  // this process itself was delayed
    if (!is_suspended_ && now - std::max(channel_.last_received(), listening_since_) > timeout_) stop();
    next_tick_ = now + timeout_ / 4;
    if (!is_stopping_) loop_.call_at(next_tick_, [this] { tick(); });
  }

  // Ends everything, because the launcher that wanted this job is gone.
  void stop() {
    if (std::exchange(is_stopping_, true)) return;
    if (connections_) connections_->close();
    if (node_process_) {
      node_process_->end_input();
      for (std::size_t stream : {0U, 1U}) node_process_->close_output(stream);
      node_process_->signal(SIGTERM);
      node_process_->signal(SIGCONT);
    }
    loop_.call_at(EventLoop::Clock::now() + grace_ + kExtraGraceTime, [this] {
      if (node_process_) node_process_->signal(SIGKILL);
      if (connections_) connections_->kill();
      gives_up_ = true;
    });
  }

  EventLoop loop_;
  SignalSource signals_;
  Channel channel_;
  UniqueFd kept_port_;
  std::uint32_t number_ = 0;
  EventLoop::Clock::duration timeout_ = kTaskTimeout;
  EventLoop::Clock::time_point next_tick_ = EventLoop::Clock::now();
  EventLoop::Clock::time_point listening_since_ = next_tick_;
  EventLoop::Clock::duration grace_{0};
  bool is_suspended_ = false;
  bool is_stopping_ = false;
  bool gives_up_ = false;
  std::optional<HostConnections> connections_;
  std::optional<NodeArguments> node_;
  std::unique_ptr<NodeProcess> node_process_;
};

}  // namespace

int run_agent() {
  return Agent().run();
}

}  // namespace launcher::remote
