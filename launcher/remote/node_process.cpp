#include "launcher/remote/node_process.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/signals.h"
#include "launcher/plan/rank_plan.h"
#include "launcher/remote/job_plan.h"

namespace launcher::remote {
namespace {

// More than the longest line that a ddprun passes on, so that lines of several hosts do not mix.
constexpr std::size_t kMaxLineBytes = std::size_t{128} << 10;

// A file in memory, which the process can read repeatedly and which no other process finds.
UniqueFd keep_secret(const std::string& secret) {
  UniqueFd fd(::memfd_create("ddprun-secret", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    throw LaunchError(std::string("cannot keep the job's secret in memory: ") + std::strerror(errno));
  }
  return fd;
}

ChildProcess start(const Plan& plan, const NodeArguments& node, const sigset_t& mask) {
  const UniqueFd secret = keep_secret(plan.secret);
  ChildRequest request{.file = own_program(),
                       .arguments = {"ddprun", "--part_of_job=" + std::to_string(secret.get())},
                       .environment = merged_environment(current_environment(), plan.environment),
                       .folder = plan.folder,
                       .requires_folder = plan.needs_folder,
                       .parent_death_signal = SIGTERM,
                       .mask = &mask,
                       .kept = secret.get()};
  request.arguments.insert(request.arguments.end(), plan.arguments.begin(), plan.arguments.end());
  request.arguments.insert(request.arguments.end(), node.arguments.begin(), node.arguments.end());
  request.arguments.emplace_back("--");
  request.arguments.insert(request.arguments.end(), plan.program.begin(), plan.program.end());
  return start_child(request);
}

}  // namespace

NodeProcess::NodeProcess(EventLoop& loop, const Plan& plan, const NodeArguments& node, const sigset_t& mask,
                         std::function<void(Frame)> send)
    : loop_(loop),
      send_(std::move(send)),
      window_(plan.window),
      keeps_lines_(plan.keeps_lines),
      process_(start(plan, node, mask)) {
  streams_[0].reader = std::move(process_.output);
  streams_[1].reader = std::move(process_.errors);
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    streams_[stream].credit = window_;
    watch(stream);
  }
  if (!node.reads_input) close_input();
}

NodeProcess::~NodeProcess() {
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) close_output(stream);
  close_input();
}

// Reads while there is room for a line.
void NodeProcess::watch(std::size_t stream) {
  Stream& own = streams_[stream];
  const bool on = own.reader && own.waiting.size() < kMaxLineBytes && !is_gone();
  if (on == own.is_watched) return;
  own.is_watched = on;
  if (on) {
    loop_.add(own.reader.get(), EPOLLIN, [this, stream](std::uint32_t) {
      if (read(stream)) pass_on(stream);
    });
  } else if (own.reader) {
    loop_.remove(own.reader.get());
  }
}

bool NodeProcess::read(std::size_t stream) {
  Stream& own = streams_[stream];
  std::array<char, std::size_t{64} << 10> bytes;
  const ssize_t count = ::read(own.reader.get(), bytes.data(), bytes.size());
  // Processes that it left running may still have its output open; ddprun does not wait for them.
  if (count < 0 && (errno == EINTR || (errno == EAGAIN && !is_gone()))) return false;
  if (count > 0) {
    own.waiting.append(bytes.data(), static_cast<std::size_t>(count));
    return true;
  }
  if (own.is_watched) loop_.remove(own.reader.get());
  own.is_watched = false;
  own.reader.reset();
  return true;
}

std::size_t NodeProcess::sendable(const Stream& stream) const {
  const std::string& waiting = stream.waiting;
  if (waiting.empty() || stream.credit == 0) return 0;
  const std::size_t most = std::min(stream.credit, waiting.size());
  if (!keeps_lines_) return most;
  if (const std::size_t newline = waiting.rfind('\n', most - 1); newline != std::string::npos) return newline + 1;
  const std::size_t newline = waiting.find('\n');
  const bool must_go = newline != std::string::npos || !stream.reader || waiting.size() >= kMaxLineBytes;
  const std::size_t line = newline == std::string::npos ? waiting.size() : newline + 1;
  return must_go && (line <= most || stream.credit >= window_) ? most : 0;
}

void NodeProcess::pass_on(std::size_t stream) {
  Stream& own = streams_[stream];
  do {
    for (std::size_t count = sendable(own); count > 0; count = sendable(own)) {
      Frame frame{Kind::kOutput, 0, encode_amount(static_cast<std::uint32_t>(stream))};
      frame.bytes.append(own.waiting, 0, count);
      own.waiting.erase(0, count);
      own.credit -= count;
      send_(std::move(frame));
    }
  } while (is_gone() && own.reader && own.waiting.size() < kMaxLineBytes && read(stream));
  watch(stream);
  if (own.reader || !own.waiting.empty() || own.is_over) return;
  own.is_over = true;
  send_({Kind::kOutputEnd, 0, encode_amount(static_cast<std::uint32_t>(stream))});
}

void NodeProcess::add_credit(std::size_t stream, std::size_t bytes) {
  if (stream >= streams_.size()) return;
  streams_[stream].credit += bytes;
  pass_on(stream);
}

void NodeProcess::close_output(std::size_t stream) {
  if (stream >= streams_.size()) return;
  Stream& own = streams_[stream];
  if (own.is_watched) loop_.remove(own.reader.get());
  own.is_watched = false;
  own.reader.reset();
  own.waiting.clear();
}

void NodeProcess::add_input(std::string_view bytes) {
  if (!process_.input || is_input_over_) return;
  input_ += bytes;
  write_input();
}

void NodeProcess::end_input() {
  is_input_over_ = true;
  write_input();
}

void NodeProcess::write_input() {
  if (!process_.input) return;
  std::size_t written = 0;
  while (written < input_.size()) {
    const ssize_t count = ::write(process_.input.get(), input_.data() + written, input_.size() - written);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      close_input();
      send_({Kind::kInputClosed, 0, ""});
      return;
    }
  }
  input_.erase(0, written);
  if (written > 0) send_({Kind::kInputTaken, 0, encode_amount(static_cast<std::uint32_t>(written))});
  watch_input(!input_.empty());
  if (input_.empty() && is_input_over_) close_input();
}

void NodeProcess::watch_input(bool on) {
  if (on == is_input_watched_) return;
  is_input_watched_ = on;
  if (on) {
    loop_.add(process_.input.get(), EPOLLOUT, [this](std::uint32_t) { write_input(); });
  } else {
    loop_.remove(process_.input.get());
  }
}

void NodeProcess::close_input() {
  if (process_.input) watch_input(false);
  process_.input.reset();
}

void NodeProcess::signal(int number) const {
  if (!is_gone()) ::kill(process_.pid, number);
}

void NodeProcess::reap() {
  if (is_gone()) return;
  const auto info = exit_info_of(process_.pid);
  if (!info) return;
  process_.pid = -1;
  Ending ending;
  if (info->si_code == CLD_EXITED) {
    ending.status = static_cast<std::uint32_t>(info->si_status);
  } else {
    was_killed_ = true;
    ending = {1, "its ddprun was killed by " + signal_name(info->si_status)};
  }
  close_input();
  send_({Kind::kEnded, 0, encode(ending)});
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) pass_on(stream);
}

}  // namespace launcher::remote
