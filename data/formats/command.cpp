#include "data/formats/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include <ddprun/data/byte_source.h>
#include <ddprun/detail/data/pass_stop.h>

namespace ddp {
namespace {

/// Resets the signals of the command, because a child process inherits ignored and blocked signals. A process with a
/// process group ignores SIGPIPE; if a pipeline inherited that, its first command would continue to write after the
/// next one has ended.
void set_signals(posix_spawnattr_t& attributes) {
  sigset_t signals{};
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int number : {SIGPIPE, SIGXFSZ}) ::sigaddset(&signals, number);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
}

/// Starts the command with `output` as its standard output. Returns 0 or an error number.
int spawn(pid_t& process, std::string command, int output) {
  posix_spawn_file_actions_t actions{};
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawnattr_t attributes{};
  ::posix_spawnattr_init(&attributes);
  set_signals(attributes);
  // The command gets its own process group, so that all processes of a pipeline can be terminated.
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::string shell = "sh", option = "-c";
  std::array<char*, 4> words = {shell.data(), option.data(), command.data(), nullptr};
  const int error = ::posix_spawn(&process, "/bin/sh", &actions, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Returns the exit status of a process. If `waits` is false and the process is still running, returns nullopt.
std::optional<int> status_of(pid_t process, bool waits) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(process, &status, waits ? 0 : WNOHANG);
  } while (ended < 0 && errno == EINTR);
  return ended == 0 ? std::nullopt : std::optional(status);
}

}  // namespace

void throw_if_stopped() {
  if (detail::pass_stop().stop_requested()) throw ReadStopped();
}

Command::Command(const std::string& text, const std::string& url) {
  std::array<int, 2> ends = {-1, -1};
  int error = ::pipe2(ends.data(), O_CLOEXEC) == 0 ? 0 : errno;
  if (error == 0 && (wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) error = errno;
  if (error == 0) error = spawn(process_, text, ends[1]);
  if (ends[1] >= 0) ::close(ends[1]);
  if (error == 0) {
    output_ = ends[0];
    return;
  }
  for (const int file : {ends[0], wake_}) {
    if (file >= 0) ::close(file);
  }
  throw DataError(url, "cannot be started: " + std::generic_category().message(error));
}

Command::~Command() {
  ::close(wake_);
  if (process_ == 0) return;
  ::kill(-process_, SIGKILL);
  ::kill(process_, SIGKILL);  // in case it has moved to another process group
  status_of(process_, /*waits=*/true);
}

void Command::wait_for(int file, std::chrono::milliseconds most) const {
  const std::stop_token token = detail::pass_stop();
  const std::stop_callback wake(token, [this] { ::eventfd_write(wake_, 1); });
  std::array<pollfd, 2> files = {
      {{.fd = file, .events = POLLIN, .revents = 0}, {.fd = wake_, .events = POLLIN, .revents = 0}}};
  int count = 0;
  do {
    throw_if_stopped();
    count = ::poll(files.data(), files.size(), static_cast<int>(most.count()));
  } while (count < 0 && errno == EINTR);
  throw_if_stopped();
}

void Command::wait_for_output() const {
  constexpr std::chrono::milliseconds kNoTimeout(-1);
  if (detail::pass_stop().stop_possible()) wait_for(output_, kNoTimeout);
}

int Command::wait_for_end() {
  using std::chrono::milliseconds;
  const bool can_stop = detail::pass_stop().stop_possible();
  milliseconds pause(1);
  std::optional<int> status;
  while (!(status = status_of(process_, !can_stop))) {
    wait_for(-1, pause);
    pause = std::min(2 * pause, milliseconds(50));
  }
  process_ = 0;
  return *status;
}

}  // namespace ddp
