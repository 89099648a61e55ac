// Processes that share the memory of the calling one until they execute a program or end. Nothing is copied for them,
// so starting one costs the same however much the caller has mapped. Unlike vfork() it leaves the caller running. On
// processors other than x86-64 they have a copy of that memory, of which the rooms below are shared.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "launcher/local/processes/raw_syscall.h"

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

}  // namespace launcher
