#include "launcher/processes/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "launcher/system/exit_status.h"
#include "launcher/system/launch_error.h"

namespace launcher {
namespace {

// What a worker whose exec failed writes into the pipe.
struct ExecFailure {
  pid_t pid = -1;
  int error = 0;
};

int open_pidfd(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

// Like dup2, but also right when both numbers are equal: the copy must survive exec.
bool move_to(int fd, int target) {
  if (fd < 0) return true;
  if (fd == target) return ::fcntl(fd, F_SETFD, 0) == 0;
  return ::dup2(fd, target) == target;
}

}  // namespace

Spawner::Spawner(const WorkerStart& start) : start_(start), gate_(make_pipe()), failures_(make_pipe(O_NONBLOCK)) {}

// As the kernel takes it; made before the fork, as a child must not allocate.
struct Spawner::KernelBinding {
  std::vector<unsigned long> cpus{};
  std::vector<unsigned long> nodes{};

  explicit KernelBinding(const CpuBinding* binding) {
    if (binding == nullptr) return;
    for (const int cpu : binding->cpus) set_bit(cpus, cpu);
    if (binding->memory_node) set_bit(nodes, *binding->memory_node);
  }

  bool apply() const {
    // Memory is a preference: where the container does not allow it, the CPUs' own node is the default anyway.
    if (!nodes.empty()) ::syscall(SYS_set_mempolicy, kPreferred, nodes.data(), nodes.size() * kBitsPerWord + 1);
    if (cpus.empty()) return true;
    return ::sched_setaffinity(0, cpus.size() * sizeof(unsigned long),
                               reinterpret_cast<const cpu_set_t*>(cpus.data())) == 0;
  }

 private:
  static constexpr int kPreferred = 1;  // MPOL_PREFERRED
  static constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);

  static void set_bit(std::vector<unsigned long>& words, int number) {
    const auto bit = static_cast<std::size_t>(number);
    if (words.size() <= bit / kBitsPerWord) words.resize(bit / kBitsPerWord + 1);
    words[bit / kBitsPerWord] |= 1UL << (bit % kBitsPerWord);
  }
};

SpawnedProcess Spawner::spawn(const SpawnRequest& request) {
  const pid_t launcher = ::getpid();
  const KernelBinding binding(request.binding);
  // A plain fork: ddprun is small, so copying its page tables costs less than the exec that follows, and unlike vfork
  // it leaves us running while the child waits at the gate.
  const pid_t pid = start_.cgroup != nullptr ? start_.cgroup->fork_into() : ::fork();
  if (pid < 0) {
    throw LaunchError(std::string("cannot start a process: ") + std::strerror(errno) +
                      (errno == EAGAIN ? " (limit on processes: ulimit -u, or the container's)" : ""));
  }
  if (pid == 0) run_child(request, binding, launcher);

  ::setpgid(pid, pid);  // in parent and child: whoever needs the group first has it
  SpawnedProcess process;
  process.pid = pid;
  return process;
}

void Spawner::watch(SpawnedProcess& process) {
  process.pidfd.reset(open_pidfd(process.pid));
  if (!process.pidfd && errno != ENOSYS && errno != EPERM && errno != EINVAL) {
    throw LaunchError(std::string("cannot watch process ") + std::to_string(process.pid) + ": " + std::strerror(errno) +
                      (errno == EMFILE ? " (limit on open files: ulimit -n)" : ""));
  }
}

void Spawner::open_gate() {
  gate_ = make_pipe();  // every worker reads the end of the old pipe
}

int Spawner::exec_error(pid_t worker) {
  ExecFailure failure;
  while (::read(failures_.reader.get(), &failure, sizeof failure) == sizeof failure) {
    exec_errors_[failure.pid] = failure.error;
  }
  const auto found = exec_errors_.find(worker);
  return found != exec_errors_.end() ? found->second : 0;
}

// Only async-signal-safe calls from here to exec.
void Spawner::run_child(const SpawnRequest& request, const KernelBinding& binding, pid_t launcher) const {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(to_int(ExitStatus::kLauncherError));  // it died before the line above

  ::close(gate_.writer.get());
  char byte = 0;
  while (::read(gate_.reader.get(), &byte, 1) < 0 && errno == EINTR) {
  }

  const std::string& folder = start_.options->working_folder;
  const bool is_in_place = folder.empty() || ::chdir(folder.c_str()) == 0;
  if (is_in_place && binding.apply() && move_to(request.stdin_fd, STDIN_FILENO) &&
      move_to(request.stdout_fd, STDOUT_FILENO) && move_to(request.stderr_fd, STDERR_FILENO) &&
      move_to(request.page_fd, request.page_fd) && move_to(request.timeline_fd, request.timeline_fd)) {
    ::setrlimit(RLIMIT_NOFILE, &start_.open_files);
    ::sigprocmask(SIG_SETMASK, &start_.mask, nullptr);
    ::execve(request.file, request.arguments, request.environment);
    if (errno == ENOEXEC && request.shell_arguments != nullptr) {
      ::execve("/bin/sh", request.shell_arguments, request.environment);
    }
  }
  const ExecFailure failure{::getpid(), errno};
  [[maybe_unused]] const ssize_t written = ::write(failures_.writer.get(), &failure, sizeof failure);
  ::_exit(
      to_int(failure.error == ENOENT || failure.error == ENOTDIR ? ExitStatus::kNotFound : ExitStatus::kNotExecutable));
}

}  // namespace launcher
