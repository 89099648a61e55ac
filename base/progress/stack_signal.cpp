#include "base/progress/stack_signal.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/memory_orders.h"

namespace ddp::detail {
namespace {

// A handler is given nothing but the signal's number.
std::atomic<Page*>& page_of_handler() noexcept {
  static std::atomic<Page*> page{nullptr};
  return page;
}

void on_signal(int /*number*/) {
  const int saved_errno = errno;
  StackEntry& stack = page_of_handler().load(kRelaxed)->stack;
  std::uint64_t answers = stack.answers.load(kRelaxed);
  // Another thread that is at it leaves a stack as good as this one's.
  if (answers % 2 == 0 && stack.answers.compare_exchange_strong(answers, answers + 1)) {
    std::array<void*, kStackFrames> frames{};
    const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      stack.frames[at].store(reinterpret_cast<std::uintptr_t>(frames[at]), std::memory_order_release);
    }
    stack.count.store(static_cast<std::uint64_t>(std::max(count, 0)), std::memory_order_release);
    stack.thread.store(static_cast<std::uint64_t>(::syscall(SYS_gettid)), kRelaxed);
    stack.answers.store(answers + 2, std::memory_order_release);
  }
  errno = saved_errno;
}

}  // namespace

void take_stack_signal(int number, Page& page) noexcept {
  struct sigaction before {};
  if (::sigaction(number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  page_of_handler().store(&page, kRelaxed);
  // The first call loads the unwinder, which allocates.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

}  // namespace ddp::detail
