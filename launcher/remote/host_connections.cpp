#include "launcher/remote/host_connections.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/signals.h"
#include "launcher/os/system/utf8.h"
#include "launcher/os/version.h"
#include "launcher/remote/ssh_command.h"

namespace launcher::remote {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxErrors = std::size_t{8} << 10;
constexpr std::size_t kMaxPreamble = std::size_t{64} << 10;
// ssh's own timeout, which covers only its connection, should expire first, because ssh's message is more informative.
constexpr auto kTimeoutBeyondSsh = 2s;
// How long the last output of an ended process may take to arrive.
constexpr auto kFinalOutputTimeout = 1s;
constexpr int kSshFailureStatus = 255;

ChildRequest command_for(const SshSettings& ssh, const NamedHost& host, const sigset_t& mask) {
  ChildRequest request{.in_own_session = true, .mask = &mask};
  if (host.is_local) {
    request.file = ssh.own_path;
    request.arguments = {"ddprun", std::string(kAgentArgument)};
    request.parent_death_signal = 0;  // the process ends when its channel ends
  } else {
    request.arguments = ssh_command(ssh, host.name);
    request.file = request.arguments.front();
  }
  return request;
}

}  // namespace

BranchConnection::BranchConnection(EventLoop& loop, const SshSettings& ssh, std::vector<NamedHost> hosts,
                                   const sigset_t& mask, Callbacks callbacks)
    : loop_(loop), ssh_(ssh), hosts_(std::move(hosts)), callbacks_(std::move(callbacks)) {
  process_ = start_child(command_for(ssh_, hosts_.front(), mask));
  channel_.emplace(loop_, std::move(process_.output), std::move(process_.input),
                   Channel::Callbacks{.on_preamble = [this](std::string_view bytes) { return on_preamble(bytes); },
                                      .on_frame =
                                          [this](Frame frame) {
                                            if (frame.kind != Kind::kPong) callbacks_.on_frame(std::move(frame));
                                          },
                                      .on_end = [this] { on_end(); }});
  loop_.add(process_.errors.get(), EPOLLIN, [this](std::uint32_t) { read_errors(); });
  tick();
}

BranchConnection::~BranchConnection() {
  if (process_.errors) loop_.remove(process_.errors.get());
  kill();
  if (!is_gone()) ::waitpid(process_.pid, nullptr, 0);
}

void BranchConnection::kill() {
  if (!is_gone()) ::kill(process_.pid, SIGKILL);
}

std::size_t BranchConnection::on_preamble(std::string_view bytes) {
  const Greeting found = find_greeting(bytes, kDdprunVersion);
  if (found.kind == Greeting::Kind::kNone && bytes.size() < kMaxPreamble) return std::string::npos;
  if (found.kind != Greeting::Kind::kSame) {
    fail(found.version.empty() ? "its shell printed other text before the first message of ddprun"
                               : "its ddprun has version " + found.version + ", this one has " + kDdprunVersion +
                                     "; --remote_ddprun chooses another one");
    kill();
    return std::string::npos;
  }
  state_ = State::kOpen;
  errors_.clear();  // it may contain a banner
  const Task task{
      .number = hosts_.front().number, .ssh = ssh_, .hosts = std::vector<NamedHost>(hosts_.begin() + 1, hosts_.end())};
  send({Kind::kTask, task.number, encode(task)});
  return found.end;
}

// The other end answers pings whatever else it does, even while its output is not read.
void BranchConnection::tick() {
  const auto timeout = std::chrono::milliseconds(ssh_.timeout_ms);
  const auto now = EventLoop::Clock::now();
  if (next_tick_ && now - *next_tick_ > timeout / 4) asking_since_ = now;
  if (state_ == State::kConnecting && now - begin_ > timeout + kTimeoutBeyondSsh) {
    is_late_ = true;
    kill();
  } else if (state_ == State::kOpen && now - std::max(channel_->last_received(), asking_since_) > timeout) {
    fail("the connection to host " + name() + " has been silent for " + std::to_string(ssh_.timeout_ms / 1000) +
         " s: its ddprun, ssh or the machine does not respond");
    kill();
  } else if (state_ == State::kOpen) {
    send({Kind::kPing, hosts_.front().number, ""});
  }
  next_tick_ = now + timeout / 4;
  timer_.start_at(*next_tick_, [this] { tick(); });
}

bool BranchConnection::read_errors() {
  std::array<char, 4096> bytes;
  const ssize_t count = ::read(process_.errors.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {
    loop_.remove(process_.errors.get());
    process_.errors.reset();
    return false;
  }
  errors_.append(bytes.data(), static_cast<std::size_t>(count));
  if (state_ == State::kOpen) {
    show_errors();
  } else if (errors_.size() > kMaxErrors) {
    errors_.erase(0, errors_.size() - kMaxErrors);
  }
  return true;
}

// Passes complete lines on.
void BranchConnection::show_errors() {
  while (true) {
    const std::size_t end = errors_.find('\n');
    if (end == std::string::npos && errors_.size() < kMaxErrors) return;
    callbacks_.on_line(printable(std::string_view(errors_).substr(0, end)));
    errors_.erase(0, end == std::string::npos ? end : end + 1);
  }
}

void BranchConnection::fail(const std::string& why) {
  const State before = std::exchange(state_, State::kBroken);
  if (before == State::kConnecting) callbacks_.on_unreachable(why);
  if (before == State::kOpen) callbacks_.on_lost(why);
}

// The channel has ended. The process's exit status gives the reason, once it has ended, too.
void BranchConnection::on_end() {
  is_at_end_ = true;
  channel_->finish_sending();
  if (end_) report_end();
}

void BranchConnection::reap() {
  if (is_gone()) return;
  end_ = exit_info_of(process_.pid);
  if (!end_) return;
  process_.pid = -1;
  if (is_at_end_) {
    report_end();
  } else {  // its last output must still be read; other processes may have the pipe open
    end_timer_.start_in(kFinalOutputTimeout, [this] { report_end(); });
  }
}

void BranchConnection::report_end() {
  while (process_.errors && read_errors()) {
  }
  const bool is_local = hosts_.front().is_local;
  SshSettings ssh = ssh_;
  if (is_local) ssh.command = "its ddprun";
  SshEnd end{.is_late = is_late_, .errors = errors_};
  (end_->si_code == CLD_EXITED ? end.status : end.signal) = end_->si_status;
  if (state_ == State::kConnecting) {
    fail(explain(end, ssh));
  } else if (state_ == State::kOpen) {
    const bool is_its_own = end.signal != 0 || (end.status == kSshFailureStatus && !is_local);
    fail("the connection to host " + name() +
         " broke: " + (is_its_own ? explain(end, ssh) : "its ddprun ended with status " + std::to_string(end.status)));
  }
}

void BranchConnection::close() {
  if (state_ == State::kConnecting) kill();
  if (state_ != State::kClosing && channel_) channel_->finish_sending();
  state_ = State::kClosing;
}

std::vector<std::vector<NamedHost>> branches(const std::vector<NamedHost>& hosts, std::size_t fanout) {
  std::vector<std::vector<NamedHost>> found;
  std::vector<NamedHost> distant;
  for (const NamedHost& host : hosts) {
    if (host.is_local) {
      found.push_back({host});
    } else {
      distant.push_back(host);
    }
  }
  const std::size_t count = std::min(std::max<std::size_t>(fanout, 1), distant.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = distant.begin() + static_cast<std::ptrdiff_t>(i * distant.size() / count);
    const auto end = distant.begin() + static_cast<std::ptrdiff_t>((i + 1) * distant.size() / count);
    found.emplace_back(begin, end);
  }
  return found;
}

HostConnections::HostConnections(EventLoop& loop, SshSettings ssh, const sigset_t& mask, Callbacks callbacks)
    : loop_(loop), ssh_(std::move(ssh)), mask_(mask), callbacks_(std::move(callbacks)) {}

void HostConnections::connect(const std::vector<NamedHost>& hosts) {
  if (is_closed_) return;
  for (const std::vector<NamedHost>& branch : branches(hosts, ssh_.fanout)) start(branch);
}

void HostConnections::start(const std::vector<NamedHost>& branch) {
  BranchConnection::Callbacks callbacks{
      .on_frame = callbacks_.on_frame,
      .on_unreachable = [this, branch](const std::string& why) { on_unreachable(branch, why); },
      .on_lost =
          [this, branch](const std::string& why) {
            for (const NamedHost& host : branch) callbacks_.on_lost(host, why);
          },
      .on_line = [this, name = branch.front().name](
                     const std::string& line) { callbacks_.on_line("host " + name + ": " + line); }};
  try {
    branches_.push_back(std::make_unique<BranchConnection>(loop_, ssh_, branch, mask_, std::move(callbacks)));
  } catch (const LaunchError& error) {
    for (const NamedHost& host : branch) callbacks_.on_unreachable(host, error.what());
    return;
  }
  for (const NamedHost& host : branch) branch_by_host_[host.number] = branches_.back().get();
}

void HostConnections::on_unreachable(const std::vector<NamedHost>& branch, const std::string& why) {
  callbacks_.on_unreachable(branch.front(), why);
  connect({branch.begin() + 1, branch.end()});
}

void HostConnections::send(const Frame& frame) {
  const std::string bytes = to_bytes(frame);
  if (frame.host == kEveryHost) {
    for (const auto& branch : branches_) {
      if (branch->is_open()) branch->send_bytes(bytes);
    }
  } else if (const auto way = branch_by_host_.find(frame.host);
             way != branch_by_host_.end() && way->second->is_open()) {
    way->second->send_bytes(bytes);
  }
}

// Iterates by index, because the end of one link may create others.
void HostConnections::reap() {
  for (std::size_t i = 0; i < branches_.size(); ++i) branches_[i]->reap();
}

void HostConnections::close() {
  is_closed_ = true;
  for (const auto& branch : branches_) branch->close();
}

void HostConnections::kill() {
  for (const auto& branch : branches_) branch->kill();
}

bool HostConnections::is_gone() const {
  return std::all_of(branches_.begin(), branches_.end(), [](const auto& branch) { return branch->is_gone(); });
}

}  // namespace launcher::remote
