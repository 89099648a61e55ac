#include "launcher/local/processes/shared_children.h"

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

#if defined(__x86_64__)
constexpr bool kSharesMemory = true;
constexpr std::uint64_t kFlags = CLONE_VM | CLONE_CHILD_CLEARTID;

// Both return the child's number, or a negated error number.
long SharedChildren::start_in_cgroup(Slot& slot, Body body, void* argument, int cgroup) {
  clone_args arguments{};
  arguments.flags = kFlags | CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.child_tid = reinterpret_cast<std::uint64_t>(&slot.runs);
  arguments.stack = reinterpret_cast<std::uint64_t>(&slot);
  arguments.stack_size = sizeof(Slot);
  arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  return raw_syscall_into(body, argument, SYS_clone3, as_word(&arguments), sizeof arguments);
}

long SharedChildren::start_beside(Slot& slot, Body body, void* argument) {
  return raw_syscall_into(body, argument, SYS_clone, static_cast<long>(kFlags | SIGCHLD), as_word(&slot + 1), 0,
                          as_word(&slot.runs));
}
#else
constexpr bool kSharesMemory = false;

long SharedChildren::start_in_cgroup(Slot& /*slot*/, Body body, void* argument, int cgroup) {
  clone_args arguments{};
  arguments.flags = CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  const long child = raw_syscall(SYS_clone3, as_word(&arguments), sizeof arguments);
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

pid_t SharedChildren::start(void* room, Body body, void* argument, int cgroup) {
  Slot* slot = static_cast<Slot*>(room);
  __atomic_store_n(&slot->runs, 1, __ATOMIC_RELEASE);
  long child = cgroup >= 0 ? start_in_cgroup(*slot, body, argument, cgroup) : -ENOSYS;
  const bool is_short_of_processes = child == -EAGAIN || child == -ENOMEM;
  if (child < 0 && !is_short_of_processes) child = start_beside(*slot, body, argument);
  if (child < 0 || !kSharesMemory) __atomic_store_n(&slot->runs, 0, __ATOMIC_RELEASE);
  return static_cast<pid_t>(child);
}

}  // namespace launcher
