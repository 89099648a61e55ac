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
  // What runs in the child, see LAUNCHER_SHARES_MEMORY. Ends with an exec or with exit_group.
  using Body = void (*)(void* argument);

  SharedChildren() = default;
  // Memory that a living child may still read stays mapped.
  ~SharedChildren();
  SharedChildren(const SharedChildren&) = delete;
  SharedChildren& operator=(const SharedChildren&) = delete;

  // Memory for one child: a stack, and room for what it needs, filled with zeros. Throws std::bad_alloc.
  void* reserve();
  // `room`: from reserve(); for one child only. `cgroup`: a descriptor of the cgroup that the child is to be in, -1:
  // the caller's, as where the kernel or the container has no clone3. Returns a negated error number on failure.
  pid_t start(void* room, Body body, void* argument, int cgroup = -1);

  // Of what reserve() returns.
  static constexpr std::size_t kRoomBytes = 1024;

 private:
  struct Slot;
  static constexpr std::size_t kSlotsInBlock = 32;

  static long start_in_cgroup(Slot& slot, Body body, void* argument, int cgroup);
  static long start_beside(Slot& slot, Body body, void* argument);

  std::vector<Slot*> blocks_;
  std::size_t used_ = kSlotsInBlock;  // of the last block
};

// What the pointers lead to must stay as it is until the worker executes or ends: it reads this in the launcher's
// memory.
struct SpawnRequest {
  const char* file = nullptr;
  char* const* arguments = nullptr;        // null-terminated
  char* const* shell_arguments = nullptr;  // for /bin/sh when the kernel knows no such format; null: no shell
  char* const* environment = nullptr;      // null-terminated
  const CpuBinding* binding = nullptr;     // null: as the launcher's
  int stdin_fd = -1;                       // -1: inherited
  int stdout_fd = -1;
  int stderr_fd = -1;
  int page_fd = -1;      // keeps its number; -1: none
  int timeline_fd = -1;  // the same
};

// One process that was started: what is known about it, no behaviour.
struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd pidfd;  // empty where the kernel or the container has no pidfd_open
};

// What the user wants for the workers, and what ddprun changed for itself and they get back.
struct WorkerStart {
  const Options* options = nullptr;  // must outlive the spawner
  sigset_t mask{};
  rlimit open_files{};
  const JobCgroup* cgroup = nullptr;  // null: ddprun's
};

class Spawner {
 public:
  explicit Spawner(const WorkerStart& start);
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Each worker leads its own process group and dies with this thread. Throws LaunchError when no process can be made.
  SpawnedProcess spawn(const SpawnRequest& request);
  // Fills `process.pidfd`: after the last spawn(), so that no worker gets copies of the pidfds of those before it.
  // Throws LaunchError when there are too few descriptors.
  static void watch(SpawnedProcess& process);
  void open_gate();
  // The errno with which the worker's exec failed, 0 when it did not; to be asked after the worker ended.
  int exec_error(pid_t worker) const;

 private:
  struct KernelBinding;
  struct Child;
  static void run_child(void* child);

  WorkerStart start_;
  std::string folder_;  // where the workers begin; empty: where the launcher is
  SharedChildren children_;
  int* gate_;  // 0: closed
  std::vector<std::unique_ptr<KernelBinding>> bindings_;
  std::unordered_map<pid_t, const Child*> child_of_;
};

}  // namespace launcher
