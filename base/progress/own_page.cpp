#include "base/progress/own_page.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "base/progress/stack_signal.h"

namespace ddp::detail {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end && value > 0 ? std::optional(value) : std::nullopt;
}

// All but the greeting.
void clear(Page& page) noexcept {
  page.version.store(0);
  page.process.store(0);
  const std::size_t begin = offsetof(Page, step);
  std::memset(reinterpret_cast<char*>(&page) + begin, 0, sizeof(Page) - begin);
}

// The launcher's, when the descriptor is still what it was: memory that nobody can shorten, with the greeting in it,
// and that no other process writes.
Page* shared_page() noexcept {
  const auto fd = number_in(kPageVariable);
  if (!fd) return nullptr;
  struct stat status {};
  const int seals = ::fcntl(*fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(*fd, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) < sizeof(Page)) {
    return nullptr;
  }
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* page = static_cast<Page*>(memory);
  if (page->greeting.load(std::memory_order_acquire) == kPageGreeting) {
    std::uint64_t owner = page->process.load(std::memory_order_relaxed);
    const bool is_free = owner == 0 || ::kill(static_cast<pid_t>(owner), 0) != 0;
    const auto own = static_cast<std::uint64_t>(::getpid());
    if (is_free && page->process.compare_exchange_strong(owner, own)) {
      if (owner != 0) clear(*page);  // of the program before this one, in a rank that is a script
      ::fcntl(*fd, F_SETFD, FD_CLOEXEC);
      return page;
    }
  }
  ::munmap(memory, sizeof(Page));
  return nullptr;
}

// Untouched memory of anonymous mappings costs nothing.
Page* private_page() noexcept {
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return static_cast<Page*>(memory);
  static Page last_resort{};
  return &last_resort;
}

struct OwnPage {
  OwnPage() noexcept {
    Page* shared = shared_page();
    writer.store(new (std::nothrow) PageWriter(shared != nullptr ? *shared : *private_page()));
    if (shared == nullptr) return;
    // What the rank forks must not write where the rank is taken to be.
    ::pthread_atfork(nullptr, nullptr, [] { instance().become_private(); });
    if (const auto number = number_in(kStackSignalVariable)) take_stack_signal(*number, *shared);
  }
  // Only async-signal-safe calls: a child of a process with threads.
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
  std::atomic<bool> counts_itself{false};
};

}  // namespace

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
  if (!own.counts_itself.load(std::memory_order_relaxed)) own_page().finish_step();
}

}  // namespace ddp::detail

namespace ddp::progress {

std::string_view name_of(Phase phase) noexcept {
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

PhaseScope::PhaseScope(Phase phase) noexcept : outer_(detail::own_page().enter_phase(phase)) {}
PhaseScope::PhaseScope(std::string_view name) noexcept : outer_(detail::own_page().enter_phase(name)) {}
PhaseScope::~PhaseScope() {
  detail::own_page().restore_phase(outer_);
}

void step() noexcept {
  detail::OwnPage::instance().counts_itself.store(true, std::memory_order_relaxed);
  detail::own_page().finish_step();
}

void value(std::string_view name, double number) noexcept {
  detail::own_page().set_value(name, number);
}

}  // namespace ddp::progress
