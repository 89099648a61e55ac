#include "launcher/remote/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "launcher/os/system/launch_error.h"

namespace launcher::remote {
namespace {

// What a child reports when its exec failed.
struct Failure {
  enum class Step { kFolder, kExecute } step = Step::kExecute;
  int error = 0;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> found;
  found.reserve(texts.size() + 1);
  for (const std::string& text : texts) found.push_back(const_cast<char*>(text.c_str()));
  found.push_back(nullptr);
  return found;
}

struct Streams {
  Pipe input = make_pipe();
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  Pipe failure = make_pipe();
};

// Uses only async-signal-safe functions; all memory was allocated before the fork.
[[noreturn]] void run_child(const ChildRequest& request, const Streams& streams, char** arguments, char** environment,
                            pid_t parent) {
  Failure failure;
  if (request.in_own_session) ::setsid();
  ::prctl(PR_SET_PDEATHSIG, request.parent_death_signal);
  if (::getppid() != parent) ::_exit(1);
  ::dup2(streams.input.reader.get(), STDIN_FILENO);
  ::dup2(streams.output.writer.get(), STDOUT_FILENO);
  ::dup2(streams.errors.writer.get(), STDERR_FILENO);
  if (request.kept >= 0) ::fcntl(request.kept, F_SETFD, 0);
  bool is_there = request.folder.empty() || ::chdir(request.folder.c_str()) == 0;
  if (!is_there) {
    failure = {Failure::Step::kFolder, errno};
    is_there = !request.requires_folder && ::chdir("/") == 0;
  }
  if (is_there) {
    if (request.mask != nullptr) ::sigprocmask(SIG_SETMASK, request.mask, nullptr);
    environ = environment;
    ::execvp(request.file.c_str(), arguments);
    failure = {Failure::Step::kExecute, errno};
  }
  [[maybe_unused]] const ssize_t written = ::write(streams.failure.writer.get(), &failure, sizeof failure);
  ::_exit(1);
}

void do_not_block(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

ChildProcess start_child(const ChildRequest& request) {
  Streams streams;
  const std::vector<char*> arguments = pointers(request.arguments);
  const std::vector<char*> own = pointers(request.environment);
  char** environment = request.environment.empty() ? environ : const_cast<char**>(own.data());
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw LaunchError("cannot start a process: " + fork_error_text(errno));
  if (pid == 0) run_child(request, streams, const_cast<char**>(arguments.data()), environment, parent);
  streams.failure.writer.reset();
  Failure failure;
  ssize_t count = 0;
  do {
    count = ::read(streams.failure.reader.get(), &failure, sizeof failure);
  } while (count < 0 && errno == EINTR);
  if (count == sizeof failure) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    const bool is_folder = failure.step == Failure::Step::kFolder;
    throw LaunchError((is_folder ? "there is no folder " + request.folder : "cannot execute " + request.file) + ": " +
                      std::strerror(failure.error) + (is_folder ? " (--wdir names another one)" : ""));
  }
  do_not_block(streams.input.writer.get());
  do_not_block(streams.output.reader.get());
  do_not_block(streams.errors.reader.get());
  return {pid, std::move(streams.input.writer), std::move(streams.output.reader), std::move(streams.errors.reader)};
}

std::optional<siginfo_t> exit_info_of(pid_t pid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return std::nullopt;
  return info;
}

std::string own_program() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error || ::access(path.c_str(), X_OK) != 0 ? "/proc/self/exe" : path;
}

}  // namespace launcher::remote
