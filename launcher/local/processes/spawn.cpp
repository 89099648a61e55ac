#include "launcher/local/processes/spawn.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <new>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

constexpr std::size_t kSlotBytes = 4096;

int open_pidfd(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

// Works like dup2(), also when both numbers are equal: the descriptor must survive exec.
LAUNCHER_SHARES_MEMORY long move_to(int fd, int target) {
  if (fd < 0) return 0;
  if (fd == target) return raw_syscall(SYS_fcntl, fd, F_SETFD, 0);
  return raw_syscall(SYS_dup3, fd, target, 0);
}

}  // namespace

// A child's memory: system calls need little stack, and no signal handler runs on it.
struct alignas(kSlotBytes) SharedChildren::Slot {
  std::array<std::byte, kReservedBytes> room;
  int runs;  // cleared by the kernel when the child no longer uses this memory
  std::array<std::byte, kSlotBytes - kReservedBytes - sizeof(int)> stack;
};

#if defined(__x86_64__)
constexpr bool kSharesMemory = true;

constexpr std::uint64_t kFlags = CLONE_VM | CLONE_CHILD_CLEARTID;

long SharedChildren::start_in_cgroup(Slot& slot, Body body, void* argument, int cgroup) {
  clone_args arguments{};
  arguments.flags = kFlags | CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.child_tid = reinterpret_cast<std::uint64_t>(&slot.runs);
  arguments.stack = reinterpret_cast<std::uint64_t>(&slot);
  arguments.stack_size = sizeof(Slot);
  arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  return raw_syscall_into(body, argument, SYS_clone3, to_syscall_argument(&arguments), sizeof arguments);
}

long SharedChildren::start_beside(Slot& slot, Body body, void* argument) {
  return raw_syscall_into(body, argument, SYS_clone, static_cast<long>(kFlags | SIGCHLD),
                          to_syscall_argument(&slot + 1), 0, to_syscall_argument(&slot.runs));
}

#else
constexpr bool kSharesMemory = false;

long SharedChildren::start_in_cgroup(Slot& /*slot*/, Body body, void* argument, int cgroup) {
  clone_args arguments{};
  arguments.flags = CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  const long child = raw_syscall(SYS_clone3, to_syscall_argument(&arguments), sizeof arguments);
  if (child == 0) body(argument);
  return child;
}

long SharedChildren::start_beside(Slot& /*slot*/, Body body, void* argument) {
  const long child = ::fork();
  if (child == 0) body(argument);
  return child < 0 ? -errno : child;
}

#endif

SharedChildren::~SharedChildren() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Slot* block = blocks_[i];
    // Slots that were never used are not read, since a read would allocate their page.
    const std::size_t reserved = i + 1 == blocks_.size() ? used_ : kSlotsInBlock;
    const bool is_used = std::any_of(block, block + reserved,
                                     [](Slot& slot) { return __atomic_load_n(&slot.runs, __ATOMIC_ACQUIRE) != 0; });
    if (!is_used) ::munmap(block, kSlotsInBlock * sizeof(Slot));
  }
}

void* SharedChildren::reserve() {
  static_assert(sizeof(Slot) == kSlotBytes);
  if (used_ == kSlotsInBlock) {
    void* memory = ::mmap(nullptr, kSlotsInBlock * sizeof(Slot), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    blocks_.push_back(static_cast<Slot*>(memory));
    used_ = 0;
  }
  return blocks_.back()[used_++].room.data();
}

pid_t SharedChildren::start(void* room, Body body, void* argument, int cgroup) {
  Slot* slot = static_cast<Slot*>(room);
  __atomic_store_n(&slot->runs, 1, __ATOMIC_RELEASE);
  long child = cgroup >= 0 ? start_in_cgroup(*slot, body, argument, cgroup) : -ENOSYS;
  const bool is_short_of_processes = child == -EAGAIN || child == -ENOMEM;
  if (child < 0 && !is_short_of_processes) child = start_beside(*slot, body, argument);
  if (child < 0 || !kSharesMemory) __atomic_store_n(&slot->runs, 0, __ATOMIC_RELEASE);
  return static_cast<pid_t>(child);
}

// The binding in the form of the kernel's system calls.
struct Spawner::KernelBinding {
  std::vector<unsigned long> cpus{};
  std::vector<unsigned long> nodes{};

  explicit KernelBinding(const CpuBinding& binding) {
    for (const int cpu : binding.cpus) set_bit(cpus, cpu);
    if (binding.memory_node) set_bit(nodes, *binding.memory_node);
  }

  static constexpr int kMpolPreferred = 1;  // MPOL_PREFERRED
  static constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);

 private:
  static void set_bit(std::vector<unsigned long>& words, int number) {
    const auto bit = static_cast<std::size_t>(number);
    if (words.size() <= bit / kBitsPerWord) words.resize(bit / kBitsPerWord + 1);
    words[bit / kBitsPerWord] |= 1UL << (bit % kBitsPerWord);
  }
};

// The data that one worker needs until its exec, in memory that it shares with the launcher.
struct Spawner::Child {
  SpawnRequest request{};
  pid_t launcher = 0;
  int exec_error = 0;  // written by the worker
  int* gate = nullptr;
  const char* folder = nullptr;  // null: the worker stays in the launcher's working folder
  const unsigned long* cpus = nullptr;
  long cpus_bytes = 0;
  const unsigned long* nodes = nullptr;
  long nodes_bits = 0;
  unsigned long mask = 0;
  rlimit open_files{};

  LAUNCHER_SHARES_MEMORY long enter_folder() const {
    return folder != nullptr ? raw_syscall(SYS_chdir, to_syscall_argument(folder)) : 0;
  }

  LAUNCHER_SHARES_MEMORY long bind() const {
    // The memory policy is a preference, so an error is ignored: where the container does not allow it, memory comes
    // from the CPUs' own node by default.
    if (nodes_bits != 0)
      raw_syscall(SYS_set_mempolicy, KernelBinding::kMpolPreferred, to_syscall_argument(nodes), nodes_bits + 1);
    return cpus_bytes != 0 ? raw_syscall(SYS_sched_setaffinity, 0, cpus_bytes, to_syscall_argument(cpus)) : 0;
  }

  LAUNCHER_SHARES_MEMORY long move_descriptors() const {
    long result = move_to(request.stdin_fd, STDIN_FILENO);
    if (result >= 0) result = move_to(request.stdout_fd, STDOUT_FILENO);
    if (result >= 0) result = move_to(request.stderr_fd, STDERR_FILENO);
    if (result >= 0) result = move_to(request.page_fd, request.page_fd);
    if (result >= 0) result = move_to(request.timeline_fd, request.timeline_fd);
    return result;
  }

  LAUNCHER_SHARES_MEMORY long execute() const {
    raw_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, to_syscall_argument(&open_files));
    raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, to_syscall_argument(&mask), 0, sizeof mask);
    const long environment = to_syscall_argument(request.environment);
    const long error =
        raw_syscall(SYS_execve, to_syscall_argument(request.file), to_syscall_argument(request.arguments), environment);
    if (error != -ENOEXEC || request.shell_arguments == nullptr) return error;
    return raw_syscall(SYS_execve, to_syscall_argument("/bin/sh"), to_syscall_argument(request.shell_arguments),
                       environment);
  }
};

Spawner::Spawner(const WorkerStart& start)
    : start_(start), folder_(start.options->working_folder), gate_(static_cast<int*>(children_.reserve())) {}

Spawner::~Spawner() = default;

SpawnedProcess Spawner::spawn(const SpawnRequest& request) {
  static_assert(sizeof(Child) <= SharedChildren::kReservedBytes);
  Child* child = new (children_.reserve()) Child{.request = request, .launcher = ::getpid(), .gate = gate_};
  if (!folder_.empty()) child->folder = folder_.c_str();
  if (request.binding != nullptr) {
    const KernelBinding& binding = *bindings_.emplace_back(std::make_unique<KernelBinding>(*request.binding));
    child->cpus = binding.cpus.data();
    child->cpus_bytes = static_cast<long>(binding.cpus.size() * sizeof(unsigned long));
    child->nodes = binding.nodes.data();
    child->nodes_bits = static_cast<long>(binding.nodes.size() * KernelBinding::kBitsPerWord);
  }
  std::memcpy(&child->mask, &start_.mask, sizeof child->mask);  // the kernel's part of sigset_t
  child->open_files = start_.open_files;

  const int cgroup = start_.cgroup != nullptr ? start_.cgroup->descriptor() : -1;
  const pid_t pid = children_.start(child, run_child, child, cgroup);
  if (pid < 0) {
    throw LaunchError(std::string("cannot start a process: ") + std::strerror(-pid) +
                      (pid == -EAGAIN ? " (limit on processes: ulimit -u, or the container's)" : ""));
  }
  ::setpgid(pid, pid);  // both parent and child call it, so that the group exists before either needs it
  child_of_[pid] = child;
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
  __atomic_store_n(gate_, 1, __ATOMIC_RELEASE);
  ::syscall(SYS_futex, gate_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int Spawner::exec_error(pid_t worker) const {
  const auto found = child_of_.find(worker);
  return found != child_of_.end() ? __atomic_load_n(&found->second->exec_error, __ATOMIC_ACQUIRE) : 0;
}

LAUNCHER_SHARES_MEMORY void Spawner::run_child(void* argument) {
  auto* child = static_cast<Child*>(argument);
  raw_syscall(SYS_setpgid, 0, 0);
  raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (raw_syscall(SYS_getppid) != child->launcher) {  // the launcher died before PR_SET_PDEATHSIG
    raw_syscall(SYS_exit_group, to_int(ExitStatus::kLauncherError));
  }
  while (__atomic_load_n(child->gate, __ATOMIC_ACQUIRE) == 0) {
    raw_syscall(SYS_futex, to_syscall_argument(child->gate), FUTEX_WAIT, 0, 0);
  }
  long result = child->enter_folder();
  if (result >= 0) result = child->bind();
  if (result >= 0) result = child->move_descriptors();
  if (result >= 0) result = child->execute();
  __atomic_store_n(&child->exec_error, static_cast<int>(-result), __ATOMIC_RELEASE);
  const bool is_missing = result == -ENOENT || result == -ENOTDIR;
  raw_syscall(SYS_exit_group, to_int(is_missing ? ExitStatus::kNotFound : ExitStatus::kNotExecutable));
}

}  // namespace launcher
