#include "base/progress/own_page.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/launcher_memory.h"
#include "base/memory_orders.h"
#include "base/timeline/own_timeline.h"

namespace ddp::detail {
namespace {

// The page for the signal handler. It is a static because a handler receives only the signal number.
std::atomic<Page*>& page_of_handler() noexcept {
  static std::atomic<Page*> page{nullptr};
  return page;
}

void on_signal(int /*number*/) {
  const int saved_errno = errno;
  StackEntry& stack = page_of_handler().load(kRelaxed)->stack;
  std::uint64_t answers = stack.answers.load(kRelaxed);
  // If another thread is already writing a stack, this thread does nothing: either stack is good enough.
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

// Installs a handler that stores the stack of the interrupted thread in the page when signal `number` arrives. Does
// nothing if the program already handles that signal.
void take_stack_signal(int number, Page& page) noexcept {
  struct sigaction before {};
  if (::sigaction(number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  page_of_handler().store(&page, kRelaxed);
  // Call backtrace() once now: the first call loads the unwinder, which allocates memory.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

// Clears the data of the previous program, for example if the rank is a shell script that runs several programs.
void clear(Page& page, bool was_anothers) noexcept {
  if (!was_anothers) return;
  page.version.store(0);
  page.process.store(0);
  const std::size_t begin = offsetof(Page, step);
  std::memset(reinterpret_cast<char*>(&page) + begin, 0, sizeof(Page) - begin);
}

// Untouched pages of an anonymous mapping use no physical memory.
Page* private_page() noexcept {
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return static_cast<Page*>(memory);
  static Page last_resort{};
  return &last_resort;
}

struct OwnPage {
  OwnPage() noexcept {
    Page* shared = claim_launcher_memory<Page>(kPageVariable, kPageGreeting, clear);
    writer.store(new (std::nothrow) PageWriter(shared != nullptr ? *shared : *private_page()));
    if (shared == nullptr) return;
    // A forked child must not write to the shared page: the launcher would take its state for the state of the rank.
    ::pthread_atfork(nullptr, nullptr, [] { instance().become_private(); });
    if (const auto number = number_in(kStackSignalVariable)) take_stack_signal(*number, *shared);
  }
  // Uses only async-signal-safe calls, because it runs in the forked child of a multithreaded process.
  void become_private() noexcept {
    Page& shared = writer.load(std::memory_order_relaxed)->page();
    ::mmap(&shared, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  static OwnPage& instance() noexcept {
    static OwnPage& own = *new OwnPage;
    return own;
  }

  std::atomic<PageWriter*> writer{nullptr};
  std::atomic<bool> expects_step{false};
  std::atomic<bool> has_counted{false};  // finish_expected_step() has counted a step
  std::atomic<bool> counts_itself{false};
};

}  // namespace

EventKind event_kind(progress::Phase phase) noexcept {
  if (phase == progress::Phase::kUser) return EventKind::kUser;
  // The other phases have the same numbers in EventKind. Values below kOther do not name a specific phase.
  return static_cast<EventKind>(std::max(phase, progress::Phase::kOther));
}

PageWriter& own_page() noexcept {
  return *OwnPage::instance().writer.load(std::memory_order_relaxed);
}

void expect_step() noexcept {
  OwnPage::instance().expects_step.store(true, std::memory_order_relaxed);
}

void finish_expected_step() noexcept {
  OwnPage& own = OwnPage::instance();
  if (!own.expects_step.load(std::memory_order_relaxed)) return;
  own.expects_step.store(false, std::memory_order_relaxed);
  if (own.counts_itself.load(std::memory_order_relaxed)) return;
  own_page().finish_step();
  end_step(/*is_reported=*/false);
  own.has_counted.store(true, std::memory_order_relaxed);
}

}  // namespace ddp::detail

namespace ddp {

std::string_view progress::name_of(Phase phase) noexcept {
  switch (phase) {
    case Phase::kStart:
      return "start";
    case Phase::kOther:
      return "between phases";
    case Phase::kData:
      return "data";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kCheckpoint:
      return "checkpoint";
    case Phase::kEvaluation:
      return "evaluation";
    case Phase::kClosing:
      return "closing";
    case Phase::kUser:
      return "other phase";
  }
  return "?";
}

progress::PhaseScope::PhaseScope(Phase phase) noexcept
    : outer_(detail::own_page().enter_phase(phase)),
      event_(detail::begin_event(detail::event_kind(phase), name_of(phase))) {}
progress::PhaseScope::PhaseScope(std::string_view name) noexcept
    : outer_(detail::own_page().enter_phase(name)), event_(detail::begin_event(detail::EventKind::kUser, name)) {}
progress::PhaseScope::~PhaseScope() {
  detail::end_event(event_);
  detail::own_page().restore_phase(outer_);
}

void progress::step() noexcept {
  detail::OwnPage& own = detail::OwnPage::instance();
  const bool is_first = !own.counts_itself.exchange(true, std::memory_order_relaxed);
  // DistributedDataParallel did not know that the program reports steps itself, and has already counted this one.
  if (is_first && own.has_counted.load(std::memory_order_relaxed)) return detail::confirm_step();
  detail::own_page().finish_step();
  detail::end_step(/*is_reported=*/true);
}

void progress::value(std::string_view name, double number) noexcept {
  detail::own_page().set_value(name, number);
  if (detail::Recorder* recorder = detail::recording()) recorder->value(name, number);
}

}  // namespace ddp
