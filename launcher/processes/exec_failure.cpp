#include "launcher/processes/exec_failure.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace launcher {
namespace {

// Of one argument or variable with its end: MAX_ARG_STRLEN, 32 pages of 4 KiB.
constexpr std::size_t kLongestString = 32 << 12;

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
                    std::size_t limit) {
  const auto is_too_long = [](const std::string& text) { return text.size() + 1 > kLongestString; };
  const std::string longest = ", and the kernel takes at most " + kilobytes(kLongestString) + " in one";
  if (const auto found = std::find_if(environment.begin(), environment.end(), is_too_long);
      found != environment.end()) {
    return "the variable " + found->substr(0, found->find('=')) + " has " + kilobytes(found->size()) + longest;
  }
  if (const auto found = std::find_if(arguments.begin(), arguments.end(), is_too_long); found != arguments.end()) {
    return "argument " + std::to_string(found - arguments.begin()) + " has " + kilobytes(found->size()) + longest;
  }
  return "the arguments have " + kilobytes(total_bytes(arguments)) + " and the environment has " +
         kilobytes(total_bytes(environment)) + "; the limit for both is " + kilobytes(limit) +
         ", a quarter of ulimit -s";
}

}  // namespace

std::string exec_failure_text(const std::string& file, int error, std::span<const std::string> arguments,
                              std::span<const std::string> environment, std::size_t limit) {
  std::string text = "cannot execute " + file + ": " + std::strerror(error);
  if (error == ENOENT) text += " (the interpreter that it names?)";
  if (error == ENOEXEC) text += " (damaged, or built for another kind of machine?)";
  if (error == E2BIG) text += " (" + too_big(arguments, environment, limit) + ")";
  return text;
}

}  // namespace launcher
