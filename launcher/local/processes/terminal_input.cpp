#include "launcher/local/processes/terminal_input.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How often ddprun checks whether it is in the foreground again (`fg`). It checks only when input was typed that it may
// not read.
constexpr auto kForegroundInterval = 100ms;

// Any process may read a terminal that is not our controlling terminal. A terminal that has hung up reports the end of
// its input.
bool is_in_foreground() {
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
  return foreground < 0 || foreground == ::getpgrp();
}

}  // namespace

void ForegroundTerminal::hand_foreground_to(pid_t group, pid_t owner) {
  if (::tcgetpgrp(STDIN_FILENO) != owner) return;
  owner_ = owner;
  ::tcsetpgrp(STDIN_FILENO, group);
}

void ForegroundTerminal::take_back() {
  if (owner_ > 0) ::tcsetpgrp(STDIN_FILENO, owner_);
  owner_ = 0;
}

TerminalInput::TerminalInput(EventLoop& loop, UniqueFd pipe) : loop_(loop), pipe_(std::move(pipe)) {
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  watch_terminal(true);
}

TerminalInput::~TerminalInput() {
  finish();
}

void TerminalInput::watch_terminal(bool on) {
  if (on == terminal_watched_) return;
  terminal_watched_ = on;
  if (on) {
    loop_.add(STDIN_FILENO, EPOLLIN, [this](std::uint32_t) { read_terminal(); });
  } else {
    loop_.remove(STDIN_FILENO);
  }
}

void TerminalInput::watch_pipe(bool on) {
  if (on == pipe_watched_) return;
  pipe_watched_ = on;
  if (on) {
    loop_.add(pipe_.get(), EPOLLOUT, [this](std::uint32_t) { write_pipe(); });
  } else {
    loop_.remove(pipe_.get());
  }
}

void TerminalInput::resume() {
  if (pipe_ && pending_.empty()) watch_terminal(true);
}

void TerminalInput::finish() {
  watch_terminal(false);
  watch_pipe(false);
  foreground_timer_.cancel();
  pipe_.reset();
}

// A running process gets no signal when it is moved to the foreground: a shell's `fg` sends SIGCONT only to suspended
// ones.
void TerminalInput::wait_for_foreground() {
  if (foreground_timer_.is_running()) return;
  foreground_timer_.start_in(kForegroundInterval, [this] {
    if (is_in_foreground()) {
      resume();
    } else {
      wait_for_foreground();
    }
  });
}

void TerminalInput::read_terminal() {
  // In the background another process group owns the terminal, and reading would suspend this process.
  if (!is_in_foreground()) {
    watch_terminal(false);
    wait_for_foreground();
    return;
  }
  std::array<char, 4096> bytes;
  const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    finish();  // the user typed the end of the file, or the terminal is gone
    return;
  }
  pending_.assign(bytes.data(), static_cast<std::size_t>(count));
  watch_terminal(false);
  write_pipe();
}

void TerminalInput::write_pipe() {
  const ssize_t count = ::write(pipe_.get(), pending_.data(), pending_.size());
  if (count < 0 && errno != EAGAIN && errno != EINTR) {
    finish();  // the pipe has no reader any more
    return;
  }
  if (count > 0) pending_.erase(0, static_cast<std::size_t>(count));
  watch_pipe(!pending_.empty());
  watch_terminal(pending_.empty());
}

}  // namespace launcher
