#include "launcher/local/processes/exec_failure.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace launcher {
namespace {

constexpr std::size_t kPagesOfOne = 32;                 // MAX_ARG_STRLEN
constexpr std::size_t kLeastOfBoth = 128 << 10;         // ARG_MAX, whatever the stack's limit
constexpr std::size_t kMostOfBoth = (8 << 20) / 4 * 3;  // three quarters of _STK_LIM, though the stack be unlimited

std::string kilobytes(std::size_t bytes) {
  return std::to_string((bytes + 1023) / 1024) + " KiB";
}

// With its end and the pointer to it, as the kernel counts.
std::size_t total_bytes(std::span<const std::string> strings) {
  std::size_t total = 0;
  for (const std::string& text : strings) total += text.size() + 1 + sizeof(char*);
  return total;
}

std::string too_big(std::span<const std::string> arguments, std::span<const std::string> environment,
                    const ExecLimits& limits) {
  const auto is_too_long = [&](const std::string& text) { return text.size() + 1 > limits.of_one; };
  const std::string longest = ", and the kernel takes at most " + kilobytes(limits.of_one) + " in one";
  if (const auto found = std::find_if(environment.begin(), environment.end(), is_too_long);
      found != environment.end()) {
    return "the variable " + found->substr(0, found->find('=')) + " has " + kilobytes(found->size()) + longest;
  }
  if (const auto found = std::find_if(arguments.begin(), arguments.end(), is_too_long); found != arguments.end()) {
    return "argument " + std::to_string(found - arguments.begin()) + " has " + kilobytes(found->size()) + longest;
  }
  return "the arguments have " + kilobytes(total_bytes(arguments)) + " and the environment has " +
         kilobytes(total_bytes(environment)) + "; the limit for both is " + kilobytes(limits.of_both) +
         (limits.of_both < kMostOfBoth ? ", a quarter of ulimit -s" : ", the kernel's highest");
}

}  // namespace

ExecLimits exec_limits(std::size_t page_bytes, std::size_t stack_bytes) {
  return {.of_both = std::clamp(stack_bytes / 4, kLeastOfBoth, kMostOfBoth), .of_one = kPagesOfOne * page_bytes};
}

ExecLimits exec_limits() {
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0) stack.rlim_cur = RLIM_INFINITY;
  return exec_limits(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), stack.rlim_cur);
}

std::string exec_failure_text(const std::string& file, int error, std::span<const std::string> arguments,
                              std::span<const std::string> environment, const ExecLimits& limits,
                              const std::string& cause) {
  std::string text = "cannot execute " + file + ": " + (cause.empty() ? std::strerror(error) : cause);
  if (!cause.empty()) return text;
  if (error == ENOENT) text += " (the interpreter that it names?)";
  if (error == ENOEXEC) text += " (damaged, or built for another kind of machine?)";
  if (error == E2BIG) text += " (" + too_big(arguments, environment, limits) + ")";
  return text;
}

}  // namespace launcher
