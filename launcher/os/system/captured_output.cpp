#include "launcher/os/system/captured_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMaxCapturedBytes = 64 << 10;
// The pause between two checks of a command that has closed its output; nearly all commands have ended by then.
constexpr int kPollPauseMs = 2;

}  // namespace

std::optional<std::string> read_to_end(int fd, Clock::time_point deadline) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < kMaxCapturedBytes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd event{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? ::poll(&event, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count < 0 && errno != EINTR) return std::nullopt;
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return std::nullopt;
}

namespace {

// A command may continue after it closed its output. Returns true when it has ended.
bool wait_for_end(pid_t pid, Clock::time_point deadline) {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
    if (Clock::now() >= deadline) return false;
    ::poll(nullptr, 0, kPollPauseMs);
  }
  return true;
}

}  // namespace

std::optional<std::string> captured_output(const std::string& file, std::vector<std::string> arguments,
                                           std::chrono::milliseconds timeout) {
  Pipe output = make_pipe();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output.writer.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, file.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return std::nullopt;
  output.writer.reset();
  const auto deadline = Clock::now() + timeout;
  auto text = read_to_end(output.reader.get(), deadline);
  if (!text || !wait_for_end(pid, deadline)) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return text && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : std::nullopt;
}

}  // namespace launcher
