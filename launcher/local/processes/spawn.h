// Starts worker processes. All of them wait at a gate between fork and exec until the launcher has registered every
// one: no rank can fail before the launcher watches all ranks, so the order of failures is the kernel's.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/local/processes/job_cgroup.h"
#include "launcher/local/processes/raw_syscall.h"
#include "launcher/os/machine/cpu_binding.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/options.h"

namespace launcher {

class SharedChildren {
 public:
  // The function that runs in the child, see LAUNCHER_SHARES_MEMORY. It ends with an exec or with exit_group.
  using Body = void (*)(void* argument);

  SharedChildren() = default;
  // Does not unmap memory that a living child may still read.
  ~SharedChildren();
  SharedChildren(const SharedChildren&) = delete;
  SharedChildren& operator=(const SharedChildren&) = delete;

  // Returns memory for one child: a stack, and room for its data, filled with zeros. Throws std::bad_alloc.
  void* reserve();
  // `room` is what reserve() returned; it can be used for one child only. `cgroup` is a descriptor of the cgroup for
  // the child, or -1 for the caller's; without clone3 the child is in the caller's, too. Returns a negated error number
  // on failure.
  pid_t start(void* room, Body body, void* argument, int cgroup = -1);

  // The size of the memory that reserve() returns.
  static constexpr std::size_t kReservedBytes = 1024;

 private:
  struct Slot;
  static constexpr std::size_t kSlotsInBlock = 32;

  static long start_in_cgroup(Slot& slot, Body body, void* argument, int cgroup);
  static long start_beside(Slot& slot, Body body, void* argument);

  std::vector<Slot*> blocks_;
  std::size_t used_ = kSlotsInBlock;  // slots of the last block
};

// The pointers must stay valid and the data unchanged until the worker has called exec or has ended: the worker reads
// them in the launcher's memory.
struct SpawnRequest {
  const char* file = nullptr;
  char* const* arguments = nullptr;        // null-terminated
  char* const* shell_arguments = nullptr;  // null: no shell is tried when the kernel does not know the file's format
  char* const* environment = nullptr;      // null-terminated
  const CpuBinding* binding = nullptr;     // null: the launcher's binding
  int stdin_fd = -1;                       // -1: inherited
  int stdout_fd = -1;
  int stderr_fd = -1;
  int page_fd = -1;      // keeps its number in the worker; -1: there is no page
  int timeline_fd = -1;  // keeps its number in the worker; -1: there is no timeline
};

// The numbers of one process that was started.
struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd pidfd;  // empty where the kernel or the container has no pidfd_open
};

// What the user wants for the workers, and the settings that ddprun changed for itself and that the workers get back.
struct WorkerStart {
  const Options* options = nullptr;  // must outlive the spawner
  sigset_t mask{};
  rlimit open_files{};
  const JobCgroup* cgroup = nullptr;  // null: the workers stay in ddprun's cgroup
};

class Spawner {
 public:
  explicit Spawner(const WorkerStart& start);
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Each worker leads its own process group and dies with this thread. Throws LaunchError when no process can be made.
  SpawnedProcess spawn(const SpawnRequest& request);
  // Fills `process.pidfd`. Call it after the last spawn(), so that no worker inherits the pidfds of earlier workers.
  // Throws LaunchError when there are too few descriptors.
  static void watch(SpawnedProcess& process);
  void open_gate();
  // Returns the errno of the worker's exec, or 0 if it succeeded. Call it after the worker has ended.
  int exec_error(pid_t worker) const;

 private:
  struct KernelBinding;
  struct Child;
  static void run_child(void* child);

  WorkerStart start_;
  std::string folder_;  // where the workers start; empty: in the launcher's working folder
  SharedChildren children_;
  int* gate_;  // the value 0 means closed
  std::vector<std::unique_ptr<KernelBinding>> bindings_;
  std::unordered_map<pid_t, const Child*> child_of_;
};

}  // namespace launcher
