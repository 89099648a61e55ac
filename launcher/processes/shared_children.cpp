#include "launcher/processes/shared_children.h"

#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <new>

namespace launcher {
namespace {

constexpr std::size_t kSlotBytes = 4096;

}  // namespace

// A child's memory: system calls need little stack, and no signal handler runs on it.
struct alignas(kSlotBytes) SharedChildren::Slot {
  std::array<std::byte, kRoomBytes> room;
  int runs;  // cleared by the kernel when the child no longer uses this memory
  std::array<std::byte, kSlotBytes - kRoomBytes - sizeof(int)> stack;
};

SharedChildren::~SharedChildren() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Slot* block = blocks_[i];
    const bool is_used = std::any_of(block, block + kSlotsInBlock,
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

#if defined(__x86_64__)
pid_t SharedChildren::start(void* room, Body body, void* argument, int cgroup) {
  Slot* slot = static_cast<Slot*>(room);
  __atomic_store_n(&slot->runs, 1, __ATOMIC_RELEASE);
  constexpr std::uint64_t kFlags = CLONE_VM | CLONE_CHILD_CLEARTID;
  long child = -ENOSYS;
  if (cgroup >= 0) {
    clone_args arguments{};
    arguments.flags = kFlags | CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.child_tid = reinterpret_cast<std::uint64_t>(&slot->runs);
    arguments.stack = reinterpret_cast<std::uint64_t>(slot);
    arguments.stack_size = sizeof(Slot);
    arguments.cgroup = static_cast<std::uint64_t>(cgroup);
    child = raw_syscall_into(body, argument, SYS_clone3, as_word(&arguments), sizeof arguments);
  }
  if (child < 0 && (cgroup < 0 || (child != -EAGAIN && child != -ENOMEM))) {
    child = raw_syscall_into(body, argument, SYS_clone, static_cast<long>(kFlags | SIGCHLD), as_word(slot + 1), 0,
                             as_word(&slot->runs));
  }
  if (child < 0) __atomic_store_n(&slot->runs, 0, __ATOMIC_RELEASE);
  return static_cast<pid_t>(child);
}
#else
pid_t SharedChildren::start(void* /*room*/, Body body, void* argument, int cgroup) {
  long child = -ENOSYS;
  if (cgroup >= 0) {
    clone_args arguments{};
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<std::uint64_t>(cgroup);
    child = raw_syscall(SYS_clone3, as_word(&arguments), sizeof arguments);
  }
  if (child < 0 && (cgroup < 0 || (child != -EAGAIN && child != -ENOMEM))) {
    child = ::fork();
    if (child < 0) child = -errno;
  }
  if (child == 0) body(argument);
  return static_cast<pid_t>(child);
}
#endif

}  // namespace launcher
