#include "ddprun/base/failure_handlers.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>

#include "base/bounded_text.h"
#include "base/stack_text.h"
#include "base/utf8.h"

namespace ddp {
namespace {

using detail::BoundedText;
using detail::Stack;

constexpr std::array kFatalSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr std::size_t kSignalStackBytes = 256 << 10;
constexpr std::size_t kMaxMessageBytes = 8 << 10;
constexpr int kOwnFramesOfSignal = 2;  // usually the handler and the signal return trampoline of the kernel
constexpr int kOwnFramesOfTerminate = 1;

// State of the handlers. A signal handler receives only the signal number, so all memory that it needs is allocated
// here in advance.
struct Handlers {
  std::string error_file;
  std::string temporary_file;
  std::string rank;  // such as "1"; empty if no launcher has set it
  std::string prefix;
  pid_t process = 0;
  std::array<struct sigaction, kFatalSignals.size()> previous{};
  std::terminate_handler previous_terminate = nullptr;
  std::atomic<pid_t> reporter{0};  // the first thread that failed
  std::atomic<bool> reported{false};
  BoundedText message;
  BoundedText stack;
  BoundedText json;
};

// Never destroyed, because the crash may happen in the destructor of a static object.
Handlers& handlers() {
  static Handlers& instance = *new Handlers;
  return instance;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// Writes the nested form of the error file, which has a field for the stack. torchrun prints only py_callstack, so that
// field begins with the message.
void format_json(Handlers& state, const timespec& time) {
  BoundedText& json = state.json;
  json.clear();
  json.append(R"({"message": {"message": ")");
  json.append_json(state.message.view());
  json.append(R"(", "extraInfo": {"py_callstack": ")");
  json.append_json(state.message.view());
  json.append("\\n");
  json.append_json(state.stack.view());
  json.append(R"(", "timestamp": )");
  json.append_decimal(static_cast<std::uint64_t>(time.tv_sec));
  json.append(".");
  json.append_decimal(static_cast<std::uint64_t>(time.tv_nsec / 1000), 6);
  if (!state.rank.empty()) {
    json.append(R"(, "rank": )");
    json.append(state.rank);
  }
  json.append("}}}\n");
}

void write_error_file(Handlers& state, const timespec& time) {
  format_json(state, time);
  if (state.json.is_full()) return;  // truncated: the file that was written before is better
  const int file = ::open(state.temporary_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return;
  const ssize_t written = ::write(file, state.json.view().data(), state.json.view().size());
  const bool is_whole = written == static_cast<ssize_t>(state.json.view().size());
  if (::close(file) != 0 || !is_whole || ::rename(state.temporary_file.c_str(), state.error_file.c_str()) != 0)
    ::unlink(state.temporary_file.c_str());
}

// Returns true only for the first thread that fails; that thread writes the report. Any other failing thread waits here
// for the report, because returning earlier would end the process before the report is complete.
bool begin_report(Handlers& state) {
  if (::getpid() != state.process) return false;
  const auto me = static_cast<pid_t>(::syscall(SYS_gettid));
  pid_t nobody = 0;
  if (state.reporter.compare_exchange_strong(nobody, me)) return true;
  const timespec moment{0, 10'000'000};
  for (int i = 0; i < 500 && nobody != me && !state.reported; ++i) ::nanosleep(&moment, nullptr);
  return false;
}

// `state.message` must be set. `capture` fills the stack. It may crash in a damaged process, so the message is written
// first.
template <typename Capture>
void report_failure(Handlers& state, const Capture& capture) {
  ::signal(SIGXFSZ, SIG_IGN);  // a file size limit must not hide the failure; the process ends anyway
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const bool is_known = ::access(state.error_file.c_str(), F_OK) == 0;
  if (!is_known) write_error_file(state, now);
  write_all(STDERR_FILENO, "error: ");
  write_all(STDERR_FILENO, state.message.view());
  write_all(STDERR_FILENO, "\n");
  capture();
  write_all(STDERR_FILENO, state.stack.view());
  if (!is_known) write_error_file(state, now);
  state.reported = true;
}

bool is_near_stack_pointer([[maybe_unused]] const void* address, [[maybe_unused]] const void* context) {
#ifdef __x86_64__
  const auto at = reinterpret_cast<std::intptr_t>(address);
  const auto stack = static_cast<std::intptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
  constexpr std::intptr_t kMaxDistance = 64 << 10;
  return at > stack - kMaxDistance && at < stack + kMaxDistance;
#else
  return false;
#endif
}

void describe_signal(BoundedText& text, int number, const siginfo_t& info, const void* context) {
  const bool is_abort = number == SIGABRT && info.si_pid == ::getpid();
  if (info.si_code <= 0 && !is_abort) {  // sent by a process, not caused by an instruction
    text.append("SIG");
    text.append(::sigabbrev_np(number));
    text.append(" from process ");
    text.append_decimal(static_cast<std::uint64_t>(info.si_pid));
    return;
  }
  switch (number) {
    case SIGSEGV:
      text.append(is_near_stack_pointer(info.si_addr, context) ? "stack overflow" : "invalid memory access");
      break;
    case SIGBUS:
      text.append("memory that cannot be provided (a truncated file, a full /dev/shm?)");
      break;
    case SIGFPE:
      text.append(info.si_code == FPE_INTDIV ? "integer division by zero" : "arithmetic exception");
      break;
    case SIGILL:
      text.append("illegal instruction");
      break;
    default:
      text.append("abort()");
      break;
  }
  text.append(" (SIG");
  text.append(::sigabbrev_np(number));
  if (number != SIGABRT) {
    text.append(", address ");
    text.append_hex(reinterpret_cast<std::uintptr_t>(info.si_addr));
  }
  text.append(")");
}

// The number of frames above the frame that the signal interrupted. It is larger than usual if backtrace() is wrapped,
// for example by a sanitizer.
int own_frames_of_signal([[maybe_unused]] const Stack& stack, [[maybe_unused]] const void* context) {
#ifdef __x86_64__
  const auto at = static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  for (int i = 0; i < stack.count; ++i) {
    if (reinterpret_cast<std::uintptr_t>(stack.frames[static_cast<std::size_t>(i)]) == at) return i;
  }
#endif
  return kOwnFramesOfSignal;
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  Handlers& state = handlers();
  if (begin_report(state)) {
    state.message.clear();
    state.message.append(state.prefix);
    describe_signal(state.message, number, *info, context);
    Stack stack;
    report_failure(state, [&] {
      stack.count = ::backtrace(stack.frames.data(), static_cast<int>(stack.frames.size()));
      append_stack(state.stack, stack, own_frames_of_signal(stack, context), /*demangled=*/false);
    });
  }
  // Restores the previous action. After a fault, the instruction runs again when this handler returns, and raises the
  // signal again with its full siginfo. A signal that was sent by a process must be raised here; it is delivered when
  // this handler returns.
  const auto at = std::find(kFatalSignals.begin(), kFatalSignals.end(), number) - kFatalSignals.begin();
  ::sigaction(number, &state.previous[static_cast<std::size_t>(at)], nullptr);
  if (info->si_code <= 0) ::raise(number);
  errno = saved_errno;
}

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                        std::free);
  return status == 0 && readable ? readable.get() : type.name();
}

std::string describe_current_exception() {
  const std::exception_ptr exception = std::current_exception();
  if (!exception) return "std::terminate() without an exception (a thread that was not joined?)";
  std::string text = "uncaught ";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    text += type_name(typeid(error)) + ": " + error.what();
    // c10 errors append their own stack trace from here on.
    text.resize(std::min(text.size(), text.find("\nException raised from")));
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    text += "exception of type " + (type != nullptr ? type_name(*type) : std::string("unknown"));
  }
  if (text.size() <= kMaxMessageBytes) return text;
  return text.substr(0, detail::whole_characters(std::string_view(text).substr(0, kMaxMessageBytes))) + " [...]";
}

[[noreturn]] void on_terminate() {
  Handlers& state = handlers();
  Stack stack;
  if (begin_report(state)) {
    stack.count = ::backtrace(stack.frames.data(), static_cast<int>(stack.frames.size()));
    state.message.clear();
    state.message.append(state.prefix);
    state.message.append(describe_current_exception());
    report_failure(state, [&] { append_stack(state.stack, stack, kOwnFramesOfTerminate, /*demangled=*/true); });
  }
  if (state.previous_terminate != nullptr) state.previous_terminate();
  std::abort();
}

// Provides a separate signal stack: after a stack overflow the normal stack has no room for a handler.
void provide_signal_stack() {
  stack_t current{};
  if (::sigaltstack(nullptr, &current) == 0 && (current.ss_flags & SS_DISABLE) == 0) return;
  void* memory = ::mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  const stack_t own{.ss_sp = memory, .ss_flags = 0, .ss_size = kSignalStackBytes};
  ::sigaltstack(&own, nullptr);
}

void install(const char* error_file) {
  Handlers& state = handlers();
  state.error_file = error_file;
  state.temporary_file = state.error_file + ".tmp." + std::to_string(::getpid());
  state.process = ::getpid();
  if (const char* rank = std::getenv("RANK");
      rank != nullptr && *rank != '\0' && std::strlen(rank) < 10 &&
      std::all_of(rank, rank + std::strlen(rank), [](char c) { return c >= '0' && c <= '9'; })) {
    state.rank = std::to_string(std::atoi(rank));  // normalized, because JSON allows no leading zeros
    state.prefix = "rank " + state.rank + ": ";
  }
  // Call backtrace() once now: the first call loads the unwinder, which allocates memory.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
  provide_signal_stack();

  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  // With this flag, a fault inside the handler ends the process instead of entering the handler again.
  ::sigemptyset(&action.sa_mask);
  for (const int number : kFatalSignals) ::sigaddset(&action.sa_mask, number);
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    ::sigaction(kFatalSignals[i], nullptr, &state.previous[i]);
    if (state.previous[i].sa_handler != SIG_IGN) ::sigaction(kFatalSignals[i], &action, nullptr);
  }
  state.previous_terminate = std::set_terminate(on_terminate);
}

}  // namespace

void install_failure_handlers() {
  const char* error_file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (error_file == nullptr || *error_file == '\0') return;
  [[maybe_unused]] static const bool installed = (install(error_file), true);  // installs only once
}

}  // namespace ddp
