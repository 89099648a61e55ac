// System calls of a process that shares its parent's memory. It must not call the functions of the C library: they
// store errno, which is the parent's. On processors other than x86-64 such a process has a copy of the memory, see
// SharedChildren, and the C library's function is used.
#pragma once

#if !defined(__x86_64__)
#include <unistd.h>

#include <cerrno>
#endif

// Needed for every function that runs in such a process, because the sanitizers' code uses the parent's thread-local
// data.
#define LAUNCHER_SHARES_MEMORY __attribute__((no_sanitize("address", "thread", "undefined")))

namespace launcher {

// An argument of a system call.
template <typename Value>
LAUNCHER_SHARES_MEMORY inline long to_syscall_argument(Value* pointer) {
  return reinterpret_cast<long>(pointer);
}

// Returns the result, or a negated error number.
LAUNCHER_SHARES_MEMORY inline long raw_syscall(long number, long first = 0, long second = 0, long third = 0,
                                               long fourth = 0, long fifth = 0) {
#if defined(__x86_64__)
  register long r10 __asm__("r10") = fourth;
  register long r8 __asm__("r8") = fifth;
  long result = 0;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory", "cc");
  return result;
#else
  const long result = ::syscall(number, first, second, third, fourth, fifth);
  return result < 0 ? -errno : result;
#endif
}

#if defined(__x86_64__)

// Makes a system call that creates a process with a stack of its own. The new process calls body(argument), which does
// not return.
inline long raw_syscall_into(void (*body)(void*), void* argument, long number, long first, long second, long third = 0,
                             long fourth = 0, long fifth = 0) {
  register long r10 __asm__("r10") = fourth;
  register long r8 __asm__("r8") = fifth;
  register void (*called)(void*) __asm__("r12") = body;
  register void* passed __asm__("r13") = argument;
  long result = 0;
  __asm__ volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "movq %%r13, %%rdi\n\t"
      "callq *%%r12\n\t"
      "hlt\n"
      "1:"
      : "=a"(result)
      : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(called), "r"(passed)
      : "rcx", "r11", "memory", "cc");
  return result;
}
#endif

}  // namespace launcher
